"use strict";(()=>{function I(s){let t=document.getElementById(s);if(!t)throw new Error(`the page has no element #${s}`);return t}function a(s,t={},...e){let n=document.createElement(
s);for(let[o,i]of Object.entries(t))i==null||i===!1||(typeof i=="function"?n.addEventListener(o.slice(2),i):n.setAttribute(o,i===!0?"":String(i)));return Qe(n,e),
n}function Qe(s,t){for(let e of t)Array.isArray(e)?Qe(s,e):e!=null&&s.append(e)}function _(s,t={},...e){let n=document.createElementNS("http://www.w3.org/2000/s\
vg",s);for(let[o,i]of Object.entries(t))n.setAttribute(o,String(i));return n.append(...e),n}function Y(s,t,e,n,o){let i=a("select",{onchange:()=>n(i.value)});for(let[
r,l]of t){let c=a("option",{value:r},l);c.selected=r===e,i.append(c)}return a("div",{class:"choice"},a("label",{},a("span",{},s),i),o)}function Wt(s,t,e,n){let o=a(
"input",{type:"checkbox",onchange:()=>e(o.checked)});return o.checked=t,a("div",{class:"toggle"},a("label",{},o,a("span",{},s)),n)}function ct(s){I("live").textContent=
s}function Jt(){return new Promise(s=>{"requestIdleCallback"in window?requestIdleCallback(s,{timeout:500}):setTimeout(s,100)})}function Xt(s,t){let e=a("a",{href:URL.
createObjectURL(s),download:t});e.click(),setTimeout(()=>URL.revokeObjectURL(e.href),1e4)}function it(s,t){let e=t.getBoundingClientRect();return[s.clientX-e.left,
s.clientY-e.top]}function Zt(s,t){return s.target instanceof Element?s.target.closest(t):null}var Je=null,Xe=Uint8Array;async function Ze(s){let t=Xe.fromBase64?Xe.fromBase64(s):Uint8Array.from(atob(s),n=>n.charCodeAt(0)),e=new Response(t).body;return new Uint8Array(
await new Response(e.pipeThrough(new DecompressionStream("deflate-raw"))).arrayBuffer())}async function ts(){let s=I("data"),t=JSON.parse(new TextDecoder().decode(
await Ze(s.textContent??"")));return s.remove(),t}function bt(s){return Je??=(I("lines").textContent??"").split(`
`),Ze(Je[s])}var ht=s=>new Float32Array(s.buffer,s.byteOffset,s.byteLength/4),xe=s=>new Uint32Array(s.buffer,s.byteOffset,s.byteLength/4),pn=Float64Array.from({
length:32},(s,t)=>2**((t||1)-25));function es(s){let t=s.length/2,e=new Float32Array(t);for(let n=0;n<t;n+=1){let o=s[n]<<8|s[t+n],i=o>>10&31,r=((i?1024:0)+(o&1023))*
pn[i];e[n]=o&32768?-r:r}return e}var k;function ss(s){k=s}var u,$=[],j=new Map,dt=[],Z=new Set;async function ns(){u=await ts(),ss(u.charts),u.served&&(u.texts=fn(u.texts)),j=new Map(u.heads.map((s,t)=>[s,t])),$=[],dt=
[],u.sites.forEach((s,t)=>{dt.push($.length);for(let e=0;e<s.heads;e+=1)$.push({site:t,head:e,number:wn(u.heads[$.length])})}),Z=gn()}function fn(s){let t=[];for(let e of s)
t[e.at??0]=e;return t}var wn=s=>Number(/H(\d+)$/.exec(s)?.[1]??0),Ht=s=>s.replace(/H\d+$/,"");function gn(){let s=u.curve,t=s?.curves[0];if(!s||!t)return new Set(
[]);let e=t.points.find(n=>n.gone===s.prunable);return new Set(e?.heads??t.order.slice(0,s.prunable))}function O(s){return s&&u.table&&Object.hasOwn(u.table,s)?
u.table[s]:null}var xt=(s,t)=>O(s)?.values[t]??null;function T(s,t){let e=xt(s,t);return typeof e=="number"?e:null}function H(s,t){let e=xt(s,t);return typeof e==
"string"?e:""}var te=s=>u.heads.map((t,e)=>T(s,e)),os=()=>Object.keys(u.table??{}).filter(s=>O(s)?.values.some(t=>typeof t=="number"));function is(s,t){let e=O(
s)?.why??{};return Object.keys(e).find(n=>e[n].includes(u.heads[t]))??""}var P=s=>H("kind",s),rs=s=>[P(s),H("kind_detail",s)].filter(Boolean).join(" "),ut=s=>T(
u.importance,s);function ee(s){let t=u.importance?T(`${u.importance}_error`,s):null;return t===null?null:1.96*t}function vt(s,[t,e]){let n=$[s],o=u.sites.length,
i=(n.site+t+o)%o,r=u.sites[i].heads,l=t?Math.min(n.head,r-1):(n.head+e+r)%r;return dt[i]+l}var se={ArrowLeft:[0,-1],ArrowRight:[0,1],ArrowUp:[-1,0],ArrowDown:[1,
0]};var ne=()=>Object.fromEntries(new URLSearchParams(location.hash.slice(1)));function rt(s,t){let e=Number(s);return s!==void 0&&s!==""&&Number.isInteger(e)&&e>=0&&
e<t?e:null}function B(s){return`#${Object.entries({...ne(),...s}).filter(([,e])=>e!==void 0&&e!=="").map(([e,n])=>`${e}=${encodeURIComponent(String(n))}`).join(
"&")}`}function S(s){location.hash=B(s)}function Et(s){history.replaceState(null,"",B(s))}function Bt(s){let{site:t,number:e}=$[s],{stack:n,layer:o}=u.sites[t];
return{stack:n||void 0,layer:String(o),head:String(e)}}var E=s=>B({view:void 0,kind:void 0,share:void 0,pick:void 0,second:void 0,...Bt(s)}),oe={view:"heads",layer:void 0,
head:void 0,second:void 0,row:void 0};function $e(s){if(s.layer===void 0||s.head===void 0)return null;let t=$.findIndex(({site:e,number:n})=>{let{layer:o,stack:i}=u.
sites[e];return String(o)===s.layer&&(i||"")===(s.stack||"")&&String(n)===s.head});return t<0?null:t}var as=s=>s==null||Number.isNaN(s);function L(s,t=k.format.digits){let{missing:e,plain:n}=k.format;if(as(s))return e;let o=Math.abs(s);return Number.isInteger(s)&&
o<n[1]?String(s):o>=n[1]||o<n[0]?s.toExponential(1).replace("e+","e").replace(".0e","e"):String(Number(s.toPrecision(t)))}function b(s){let{missing:t,fraction_digits:e}=k.
format;return as(s)?t:s.toFixed(e)}var Lt=(s,t=2)=>`${L(100*s,t)} %`;function Ft(s){let t=Math.max(0,Math.min(3,Math.floor(Math.log10(Math.max(1,s))/3)));return`${Number(
(s/1e3**t).toPrecision(3))}${[""," k"," M"," G"][t]}`}function C(s,t=24){let e=Array.from(s);return e.length<=t?s:`${e.slice(0,t-1).join("")}…`}var F=s=>s?`${s[0].
toUpperCase()}${s.slice(1)}${/[.!?]$/.test(s)?"":"."}`:"",tt=(s,t)=>`${s} ${t}${s===1?"":"s"}`;var D="system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif",Ct=()=>window.devicePixelRatio||1;function Dt(s){let t=s.getContext("2d");if(!t)throw new Error(
"this browser draws no canvas");return t}function z(s,t,e){let n=Ct(),[o,i]=[Math.max(1,Math.round(t*n)),Math.max(1,Math.round(e*n))],r=Dt(s);return s.width===o&&
s.height===i&&s.style.width&&"reset"in r?r.reset():(s.width=o,s.height=i,s.style.width=`${t}px`,s.style.height=`${e}px`),r.setTransform(n,0,0,n,0,0),r}function qt(s,t=160){
let e=a("canvas",{class:"bar","aria-hidden":"true"}),n=z(e,t,10);for(let o=0;o<t;o+=1)n.fillStyle=s(o/(t-1)),n.fillRect(o,0,1,10);return e}function et(s,t,e,n){
s.save(),s.translate(e,n),s.rotate(-Math.PI/2),s.fillText(t,0,0),s.restore()}var ls=s=>Object.hasOwn(u.kind_texts,s)?u.kind_texts[s]:null,G=s=>ls(s)?.label??s,ie=s=>ls(s)?.sentence??"";var Se=20,cs=.4,re=2*Math.PI;function hs(s,{color:t,size:e=.6,hollow:n},o,i,r){let[l,c]=k.size,h=Math.max(1.2,r/2*(l+(c-l)*e));s.beginPath(),s.arc(o+r/2,i+r/2,h,
0,re),s.lineWidth=Math.max(1,Math.min(2.5,r/12)),s.strokeStyle=s.fillStyle=t,n?s.stroke():s.fill()}function kn(s,{color:t},e,n,o){let i=ds(o);s.fillStyle=t,s.fillRect(
e+i,n+i,o-2*i,o-2*i)}function yn(s,t,e,n,o){t.parts?o<Se?xn(s,t,e,n,o):bn(s,t,e,n,o):hs(s,{...t,size:.2},e,n,o)}function bn(s,{parts:t=[],leading:e=[],size:n=1,
hollow:o},i,r,l){let{size:[c,h],hole:d,centre:m}=k.ring,p=l/2*(c+(h-c)*n),[f,x]=[i+l/2,r+l/2],v=(W,X,K)=>{s.beginPath(),s.arc(f,x,W,re*(X-.25),re*(K-.25))},q=p*
(1-d),A=.6/(re*(p-q/2)),g=0;s.lineWidth=q,t.forEach((W,X)=>{let K=g+W,ot=W>3*A&&W<1?A:0;s.strokeStyle=k.shares[X].colour,v(p-q/2,g+ot,K-ot),W>0&&s.stroke(),g=K}),
s.lineWidth=Math.max(1.2,p/9);let R=p*m-(o?s.lineWidth/2:0);e.forEach(({colour:W},X)=>{s.strokeStyle=s.fillStyle=W;let[K,ot]=[.5+X/e.length,.5+(X+1)/e.length];v(
R,K,ot),o?s.stroke():s.fill()})}function xn(s,{parts:t=[],leading:e=[],hollow:n},o,i,r){let l=ds(r),c=r-2*l,h=Math.max(1,r/8),d=k.shares.map(({name:f})=>f),m=e.
reduce((f,{name:x})=>f+t[d.indexOf(x)],0),p=s.globalAlpha;s.globalAlpha=p*(cs+(1-cs)*Math.sqrt(Math.max(0,Math.min(1,m)))),s.lineWidth=h,e.forEach(({colour:f},x)=>{
let v=c/e.length,[q,A]=[o+l+x*v,i+l];s.strokeStyle=s.fillStyle=f,n?s.strokeRect(q+h/2,A+h/2,v-h,c-h):s.fillRect(q,A,v,c)}),s.globalAlpha=p}var ds=s=>s>12?1.5:.5,
us={dot:hs,square:kn,shares:yn};var $t=s=>s.split(",")[0];function Q(s){let t=$t(s).split(" + ");return k.shares.filter(({name:e})=>t.includes(e))}var St=256;function zt(s){let{kinds:t,no_value:e}=k;return Object.hasOwn(t,s)?t[s]:Q(s)[0]?.colour??e}function le(s){let[t,e]=Q(s);return e?`linear-gradient(90d\
eg, ${t.colour} 50%, ${e.colour} 50%)`:zt(s)}var Te=s=>k.lines[s%k.lines.length],vn=s=>[1,3,5].map(t=>parseInt(s.slice(t,t+2),16));function $n(s){let t=s.map(vn),
e=new Uint8Array(3*St);for(let n=0;n<St;n+=1){let o=n/(St-1)*(t.length-1),i=Math.min(t.length-2,Math.floor(o));for(let r=0;r<3;r+=1)e[3*n+r]=Math.round(t[i][r]+
(o-i)*(t[i+1][r]-t[i][r]))}return e}var ms=new Map;function ps(s){let t=ms.get(s);return t||(t=$n(k.ramps[s]),ms.set(s,t)),t}var Ae=()=>document.documentElement.
dataset.theme==="dark"?"weight-dark":"weight";function at(s,t){let e=ps(s),n=3*Math.max(0,Math.min(St-1,Math.round(t*(St-1))));return`rgb(${e[n]} ${e[n+1]} ${e[n+2]})`}var Me=new Map,ae=null;function M(s){let t=Me.
get(s);return t===void 0&&(t=getComputedStyle(document.documentElement).getPropertyValue(s).trim(),Me.set(s,t)),t}function fs(){if(!ae){let s=ps(Ae()),t=new Uint8Array(
4*St).fill(255);for(let e=0;e<St;e+=1)t.set(s.subarray(3*e,3*e+3),4*e);ae=new Uint32Array(t.buffer)}return ae}function ws(){ae=null,Me.clear()}function lt(s){if(!H("leading",s))return null;let t=k.shares.map(({name:e})=>T(e,s));return t.includes(null)?null:t}var Ut=()=>u.heads.some((s,t)=>lt(t)!==null),
J=s=>Q(H("leading",s));function gs(s){let t=J(s).map(({one:e})=>e);return t.length?`This head ${t.join("; it also ")}.`:""}var mt=62,Rt=40,ks=46,Sn=5;function Mn(s,t){if(s==="shares"||s==="kind"){let r=u.heads.map((h,d)=>ut(d)),[,l]=ys(r),c=s==="shares"?1:.6;return h=>({shape:s==="s\
hares"?"shares":"dot",color:zt(P(h)),size:l>0?Math.sqrt(Math.max(r[h]??0,0)/l):c,hollow:Z.has(u.heads[h]),faded:!t(h),parts:lt(h)??void 0,leading:J(h)})}let e=te(
s),{ramp:n,low:o,high:i}=Oe(e);return r=>{let l=e[r];return{shape:"square",color:l===null?M("--line"):at(n,i>o?(l-o)/(i-o):.5)}}}function Oe(s){let[t,e]=ys(s),n=Math.
max(-t,e);return t<0&&e>0?{ramp:"signed",low:-n,high:n}:{ramp:"measure",low:t,high:e}}function ys(s){let[t,e]=[1/0,-1/0];for(let n of s)n!==null&&n<t&&(t=n),n!==
null&&n>e&&(e=n);return[t,e]}var ce=class{constructor(t,e){this.by=t,this.chosen=e,this.columns=1+Math.max(...$.map(n=>n.number)),this.headAt=new Map($.map(({site:n,
number:o},i)=>[`${n} ${o}`,i])),this.side=ks,this.picked=0,this.hovered=null,this.canvas=a("canvas",{tabindex:"0",role:"application",class:"grid","aria-label":"\
Grid of heads, layers down, heads across. Arrow keys move, Enter opens the head."}),this.note=a("p",{class:"hover","aria-hidden":"true"}),this.box=a("div",{class:"\
gridbox"},this.canvas),this.canvas.addEventListener("pointermove",n=>this.hover(this.under(n))),this.canvas.addEventListener("pointerleave",()=>this.hover(null)),
this.canvas.addEventListener("click",n=>{let o=this.under(n);o!==null&&(location.hash=E(o))}),this.canvas.addEventListener("keydown",n=>this.onKey(n)),this.canvas.
addEventListener("focus",()=>this.draw()),this.canvas.addEventListener("blur",()=>this.draw()),this.describe(null)}under(t){let[e,n]=it(t,this.canvas),[o,i]=[Math.
floor((n-Rt)/this.side),Math.floor((e-mt)/this.side)];return this.headAt.get(`${o} ${i}`)??null}hover(t){t!==this.hovered&&(this.hovered=t,this.canvas.style.cursor=
t===null?"default":"pointer",this.draw(),this.describe(t))}describe(t){let e="Point at a head for its numbers; click to open it.";this.note.textContent=t===null?
e:he(t,this.by)}onKey(t){t.key==="Enter"&&(location.hash=E(this.picked));let e=se[t.key];e&&(t.preventDefault(),t.stopPropagation(),this.picked=vt(this.picked,e),
this.draw(),this.describe(this.picked),ct(he(this.picked,this.by)))}draw(){let t=u.sites.length,e=((this.box.clientWidth||600)-mt)/this.columns;this.side=Math.max(
Sn,Math.min(ks,e>12?Math.floor(e):e)),this.box.parentElement&&(this.box.parentElement.dataset.mark=this.side<Se?"tile":"ring");let[n,o]=[this.side*this.columns,
this.side*t],i=z(this.canvas,mt+n,Rt+o+2);this.drawAxes(i,n,o);let r=Mn(this.by,this.chosen),l=document.activeElement===this.canvas?this.picked:null;$.forEach(({
site:c,number:h},d)=>{let[m,p]=[mt+h*this.side,Rt+c*this.side],f=r(d);i.globalAlpha=f.faded?.16:1,us[f.shape](i,f,m,p,this.side),i.globalAlpha=1,!(d!==this.hovered&&
d!==l)&&(i.strokeStyle=M("--ink"),i.lineWidth=1.5,i.strokeRect(m+.75,p+.75,this.side-1.5,this.side-1.5))})}drawAxes(t,e,n){t.font=`600 12px ${D}`,t.fillStyle=M(
"--ink"),t.textBaseline="middle",t.textAlign="center",t.fillText("head",mt+Math.min(e,this.box.clientWidth-mt)/2,8),et(t,"layer",8,Rt+n/2),t.font=`11px ${D}`,t.
fillStyle=M("--dim");let o=Math.max(1,Math.ceil(18/this.side));for(let r=0;r<this.columns;r+=o)t.fillText(String(r),mt+(r+.5)*this.side,Rt-11);t.textAlign="righ\
t";let i=u.sites.length>40||this.side<14;u.sites.forEach(({label:r,layer:l},c)=>{if(c%o)return;let h=i?String(l):r.replace(/^(enc|dec)oder\./,"$1.");t.fillText(
h,mt-8,Rt+(c+.5)*this.side)})}};function he(s,t){let e=[u.heads[s]];if(O("kind")){let r=T("kind_score",s),l=$t(P(s))===P(s);e.push(`${st(s)}${r===null||!l?"":` ${b(
r)}`}`)}let n=lt(s);n&&e.push(k.shares.map(({name:r},l)=>`${r} ${b(n[l])}`).join(", ")),u.importance&&e.push(`importance ${L(ut(s),2)}`);let o=H("most_similar",
s);o&&e.push(`most similar ${o} ${b(T("most_similar_cka",s))}`);let i=t==="kind"||t==="shares"||t===u.importance?null:O(t);return t&&i&&e.push(`${t} ${L(T(t,s))}`),
Z.has(u.heads[s])&&e.push("can be pruned"),e.join(" · ")}var st=s=>[G(P(s)),H("kind_detail",s)].filter(Boolean).join(" "),bs=s=>ie(P(s))||gs(s);var V={head:"A head looks at every token of a text and mixes some of them into each token. A layer has several heads, each with its own weights. L3H7 is head 7 \
of layer 3; both are counted from 0.",layer:"A step of the model. Its heads work side by side; the next layer reads what they wrote.",token:"A word or a piece o\
f a word: the unit that the model reads.",parameters:"The numbers that training has set. M is a million.","kv heads":"Heads that have keys and values of their o\
wn. Where several heads share them (grouped-query attention), there are fewer kv heads than heads.","attention map":"One square per pair of tokens. Each row is \
a query, the token that looks; each column is a key, a token that it looks at. The darker the square (on a dark page, the brighter), the larger its weight.",query:"\
The token that looks: a row of the map. Its weights sum to 1.",key:"A token that is looked at: a column of the map.",shading:"Each box is coloured by the larges\
t weight of its head from this token, on a square-root scale like the maps. The text is shaded by the mean over all heads, relative to its largest value.",weight:"\
How much of a key flows into a query, from 0 to 1. The weights of one query sum to 1. The colour shows the square root of the weight, so small weights stay visi\
ble: 0.25 has the colour in the middle of the bar.",kind:"What a head mostly does, such as looking at the previous token. A head has a kind only if its score is\
 significantly above a threshold and above chance, measured over several documents; otherwise it is named by its leading share and the share's value.",shares:"A\
 head that looks everywhere alike is all spread. Whatever makes it choose, the five shares say how much of it: spread + rest + position + word + match = 1, as p\
arts of log n for texts of n tokens. Spread and rest lead only where they dominate; two shares lead where their intervals overlap or they differ by less than 15\
 %.","example rows":"Tokens with large weights in this text, and the three keys that each looks at most. Click a token to see its row.",score:"How clearly a hea\
d is of its kind, from 0 to 1: for most kinds, the share of its weight that goes where the kind says. The tick is the threshold, the line the 95 % interval, the\
 open dot the score by chance.",evidence:"Why the head has its kind, or none: the score, its 95 % interval, the threshold and the score by chance.",importance:"\
How much worse the model gets without this head. The value after ± is half of the 95 % interval; a value below its ± may be zero.","most similar":"The head wh\
ose output is closest to that of this one, by CKA: 0 is unrelated, 1 is the same.","most similar pairs":"The two heads of each line are closest by the measure t\
hat is chosen, among the heads that are shown. Click a pair to see both maps side by side.",CKA:"Centered kernel alignment: how similar the outputs of two heads\
 are, up to a rotation. 0 is unrelated, 1 is the same.","norm-weighted":"Each weight is multiplied by the length of the vector that its key adds to the output, \
and rows sum to 1 again (Kobayashi et al. 2020). A large weight on a token that adds nothing disappears.","hide delimiters":"Leaves out special tokens such as [\
CLS] and [SEP]. The weights of the others sum to 1 again.",direction:"Where a token looks is its row of the map. Who looks at it is its column.",distance:"How f\
ar away the keys are that a head looks at, in tokens.",entropy:"How widely a head spreads its weight: 0 if it looks at one token only, larger if it looks at man\
y.",max_weight:"The largest weight that a query gives to one key; near 1, the head looks at one token at a time.",first:"The share of the weight on the first to\
ken.",special:"The share of the weight on special tokens such as [CLS], [SEP] or the end of a text.",previous:"The share of the weight on the token one position\
 back.",next:"The share of the weight on the token one position ahead.",self:"The share of the weight on the token's own position.",same_token:"The share of the\
 weight on other copies of the same token.",induction:"The share of the weight on tokens that followed an earlier copy of the same token.",output_norm:"The leng\
th of the vector that the head writes.",measures:"Values measured over the corpus. The “?” beside each says what it means.",pairs:"The tokens that the head \
ties together most strongly: from the query to the key.","by distance":"How much weight goes to keys at each distance: back on the left, ahead on the right.",group:"\
Heads that are more similar to each other, on average, than a threshold. One of them may replace the others.",pruning:"Removing heads from the model. The matric\
es get smaller, so the model needs less memory and time. Quality is measured again with the heads removed.","quality lost":"How much worse the model is without \
the removed heads, as a share: the growth of its perplexity, or the change of its outputs where it has no vocabulary.","can be pruned":"These heads can be remov\
ed together, and the model loses less quality than the limit (the dashed line).",method:"The rule that decides which heads are removed first.","heads kept":"The\
 number of heads that stay in the model, from all of them on the left to none on the right.","attention costs":"Parameters, arithmetic and memory of the attenti\
on layers alone, for a text as long as stated: counted from the sizes, not measured.","cost: parameters":"The weights of the attention layers.","cost: FLOPs, pr\
ojections":"Multiplications and additions that make queries, keys and values of every token, and mix the heads' outputs.","cost: FLOPs, attention":"Multiplicati\
ons and additions that compare every query with every key and mix the values.","cost: FLOPs, visible pairs only":"The same for pairs that the mask allows: about\
 half of them in a causal model.","cost: scores, if written out":"Memory for the attention maps of all heads if they were stored. Fast kernels never store them.",
"cost: KV cache":"Memory for the keys and values of all earlier tokens while a text is generated.","cost: decoding, FLOPs per token":"Multiplications and additi\
ons for one new token while a text is generated.","cost: decoding, bytes per token":"Memory that is read for one new token: weights and the KV cache.","cost: FL\
OPs per byte, all tokens":"Arithmetic per byte of memory traffic when a text is read at once. Above about 100, arithmetic limits the speed; below, memory does.",
"cost: FLOPs per byte, decoding":"The same for one new token while a text is generated.","cost: crossover, tokens":"The length of text above which comparing tok\
ens costs more than the projections.","cost: crossover, visible pairs only":"The same, counting only pairs that the mask allows.","as computed":"The left side o\
f the statement, computed on this model.","as stated":"The right side: the value that the statement predicts.",statement:"A claim about multi-head attention fro\
m a paper or a textbook that can be true or false.",verdict:"Holds, fails, or holds only under a condition: both sides were computed on this model."};var pt=a("div",{id:"definition",role:"note",hidden:!0}),ft=null;function Vt(){ft?.setAttribute("aria-expanded","false"),ft=null,pt.hidden=!0}function Tn(s,t,e){
Vt(),ft=s,s.setAttribute("aria-expanded","true"),pt.replaceChildren(a("b",{},t),a("p",{},e)),document.body.append(pt),pt.hidden=!1;let n=s.getBoundingClientRect(),
{width:o,height:i}=pt.getBoundingClientRect(),r=Math.max(8,Math.min(n.left-12,document.documentElement.clientWidth-o-8)),l=n.bottom+6+i<=window.innerHeight||n.top<
i+6;pt.style.left=`${r+window.scrollX}px`,pt.style.top=`${(l?n.bottom+6:n.top-i-6)+window.scrollY}px`,ct(`${t}: ${e}`)}document.addEventListener("pointerdown",s=>{
let t=s.target;ft&&!pt.contains(t)&&!ft.contains(t)&&Vt()});window.addEventListener("hashchange",Vt);document.addEventListener("keydown",s=>{s.key!=="Escape"||!ft||
(s.stopPropagation(),ft.focus(),Vt())},{capture:!0});function w(s,t=V[s]){let e=a("button",{type:"button",class:"help","aria-label":`What is ${s}?`,"aria-expand\
ed":"false",onclick:n=>{n.preventDefault(),n.stopPropagation(),ft===e?Vt():Tn(e,s,t)}});return e.textContent="?",e}var U=(s,t=s.toLowerCase())=>a("h3",{},s," ",
w(t));function nt(s){let t=O(s),e=Object.hasOwn(V,s)?V[s]:s===u.importance?V.importance:"",n=t?`${F(t.meaning)}${t.unit?` Unit: ${t.unit}.`:""}`:"";return w(s,[e,n].filter(
Boolean).join(" "))}function de(s){return w(G(s),Ee(s))}function Ee(s){let t=Object.hasOwn(u.kinds,s)?u.kinds[s]:null,e=t?`${F(t.meaning)} Its score must be abo\
ve ${t.threshold} and above chance.`:"";return[...Q(s).map(({name:o,meaning:i})=>F(`${o}: ${i}`)),ie(s),e].filter(Boolean).join(" ")}function An({q:s,k:t,dim:e},n,o,i,r){let l=n*e,c=l+e,h=o;for(;h+3<i;h+=4){let[d,m,p,f]=[0,0,0,0];for(let x=l,v=h*e;x<c;x+=1,v+=1){let q=s[x];d+=q*t[v],m+=q*t[v+
e],p+=q*t[v+2*e],f+=q*t[v+3*e]}r[h]=d,r[h+1]=m,r[h+2]=p,r[h+3]=f}for(;h<i;h+=1){let d=0;for(let m=l,p=h*e;m<c;m+=1,p+=1)d+=s[m]*t[p];r[h]=d}}function xs(s,t,e){
let{bias:n,softcap:o,sink:i}=s,[r,l,c]=[s.first[t],s.end[t],s.first.length-1-t];e.fill(0),An(s,t,r,l,e);let h=i===void 0?-1/0:i;for(let m=r;m<l;m+=1)o!==void 0&&
(e[m]=o*Math.tanh(e[m]/o)),n&&(e[m]+=n[m+c]),e[m]>h&&(h=e[m]);let d=i===void 0?0:Math.exp(i-h);for(let m=r;m<l;m+=1)e[m]=Math.exp(e[m]-h),d+=e[m];for(let m=r;m<
l;m+=1)e[m]/=d;return e}var On=40,En=()=>new Promise(s=>setTimeout(s)),vs=s=>255*Math.sqrt(s)+.5,Mt=class s{constructor(t,e,n){this.name=t,this.queries=n.queries,this.keys=n.keys,this.
rows=e.sequences[n.rows],this.columns=e.sequences[n.columns],this.square=n.rows===n.columns,this.coded=null,this.qk=null,this.norms=null,this.completing=null}static async read(t,e,n,o,i){
let r=new s(t,e,n);return o.map!==void 0?r.coded=await bt(o.map):r.qk=await Ln(o),n.norms!==null&&(r.norms=ht(await bt(n.norms)).subarray(i*n.keys,(i+1)*n.keys)),
r}complete(){return this.completing??=this.computeAll(),this.completing}async computeAll(){if(this.coded)return;let t=new Uint8Array(this.queries*this.keys),e=performance.
now();for(let n=0;n<this.queries;n+=1){let o=this.row(n);for(let i=0,r=n*this.keys;i<this.keys;i+=1)t[r+i]=vs(o[i]);performance.now()-e>On&&(await En(),e=performance.
now())}this.coded=t}get bytes(){return(this.coded?.length??0)+(this.qk?4*(this.qk.q.length+this.qk.k.length):0)}row(t){let e=new Float32Array(this.keys);if(this.
qk)return xs(this.qk,t,e);if(this.coded)for(let n=0;n<this.keys;n+=1)e[n]=(this.coded[t*this.keys+n]/255)**2;return e}column(t){let e=new Float32Array(this.queries),
n=this.coded;if(n)for(let o=0;o<this.queries;o+=1)e[o]=(n[o*this.keys+t]/255)**2;return e}weights(t,e){return t?this.row(e):this.column(e)}async preview(t){if(this.
coded)return{coded:this.coded,queries:this.queries,keys:this.keys};let e=Math.min(t,this.queries),n=new Uint8Array(e*this.keys);for(let o=0;o<e;o+=1){let i=this.
row(Math.floor((o+.5)*this.queries/e));for(let r=0;r<this.keys;r+=1)n[o*this.keys+r]=vs(i[r])}return{coded:n,queries:e,keys:this.keys}}reweighted(t,e){let n=t?this.
norms:null,o=e&&this.columns.special.some(Boolean);if(!n&&!o)return this;let i=new Float32Array(this.keys).fill(1);for(let l=0;l<this.keys;l+=1)n&&(i[l]=n[l]),o&&
this.columns.special[l]&&(i[l]=0);let r=Object.create(this);return r.row=l=>Cn(this.row(l),i),this.coded&&(r.coded=qn(this.coded,this.queries,this.keys,i)),r}};
async function Ln(s){let{q:t,k:e,first:n,end:o,dim:i}=s,r=await Promise.all([t,e,n,o].map(bt)),l=s.wide?ht:es;return{q:l(r[0]),k:l(r[1]),first:xe(r[2]),end:xe(r[3]),
dim:i,bias:s.bias===void 0?null:ht(await bt(s.bias)),softcap:s.softcap,sink:s.sink}}function Cn(s,t){let e=0;for(let n=0;n<s.length;n+=1)s[n]*=t[n],e+=s[n];if(e>
0)for(let n=0;n<s.length;n+=1)s[n]/=e;return s}function qn(s,t,e,n){let o=new Uint8Array(s.length);for(let i=0;i<t;i+=1){let r=i*e,l=0;for(let c=0;c<e;c+=1)l+=s[r+
c]**2*n[c];if(l!==0)for(let c=0;c<e;c+=1)o[r+c]=Math.round(s[r+c]*Math.sqrt(n[c]/l*255*255))}return o}function Le(s){I("trouble").textContent=s,I("trouble").hidden=!s}async function Ce(s,t,e){let n=Object.entries(t).map(([i,r])=>[i,String(r)]),o;try{o=await fetch(
`${s}?${new URLSearchParams(n)}`,{signal:e,cache:"no-store"})}catch(i){throw qe(i)||Le("The server does not answer. Is multihead serve still running?"),i}if(!o.
ok){let i=await o.text();throw Le(i),new Error(i)}return Le(""),o}async function Tt(s,t,e){let n=await Ce(s,t,e);return new Uint8Array(await n.arrayBuffer())}var qe=s=>s instanceof
DOMException&&s.name==="AbortError";async function $s(s){let e=await fetch("text",{method:"POST",body:s,headers:{"Content-Type":"text/plain"}});if(!e.ok)throw new Error(
await e.text());return e.json()}var Ss=4096,Rn=256,In=120,N=class s extends Mt{constructor(t,e,n,o){super(t,e,n),this.where=o,this.lines=new Map,this.overview=null,this.latest=null,this.asking=
null,this.controller=null,this.timer=0,this.variants=new Map,this.source=[t,e,n]}complete(){return Promise.resolve()}get bytes(){return 4*this.keys*this.lines.size+
2e6}reweighted(t,e){if(!t&&!e)return this;let n=`${t} ${e}`,o=this.variants.get(n);if(!o){let i={...this.where,...t?{norm:1}:{},...e?{hide:1}:{}};o=new s(...this.
source,i),this.variants.set(n,o)}return o}weights(t,e){return this.lines.get(`${t?"row":"column"} ${e}`)??null}async fetchWeights(t,e){let n=this.weights(t,e);if(n)
return n;let o=t?"row":"column",i=ht(await Tt(o,{...this.where,i:e}));return this.lines.size>=Rn&&this.lines.delete(this.lines.keys().next().value??""),this.lines.
set(`${o} ${e}`,i),i}picture(t,e,n,o){let[i,r]=[Math.floor(t.x),Math.floor(t.y)],l=Math.min(this.keys,Math.ceil(t.x+t.w-1e-9))-i,c=Math.min(this.queries,Math.ceil(
t.y+t.h-1e-9))-r,h={width:Math.min(l,e,Ss),height:Math.min(c,n,Ss)},d={x:i,y:r,w:l,h:c,...h},m=Object.values(d).join(" ");return this.latest?.key===m?this.latest:
this.overview?.key===m?this.overview:(this.asking!==m&&(this.cancel(),this.asking=m,this.timer=window.setTimeout(()=>this.fetchPicture(d,m,o),this.overview?In:0)),
this.overview)}async fetchPicture(t,e,n){this.controller=new AbortController;try{let o=await Tt("map",{...this.where,...t},this.controller.signal);this.latest={
key:e,part:t,coded:o,keys:t.width,queries:t.height},t.w===this.keys&&t.h===this.queries&&(this.overview=this.latest),this.asking=null,n()}catch(o){this.asking===
e&&(this.asking=null),qe(o)||ct(String(o))}}cancel(){clearTimeout(this.timer),this.controller?.abort(),this.asking=null}async preview(t){let[e,n]=[Math.min(t,this.
keys),Math.min(t,this.queries)],o={x:0,y:0,w:this.keys,h:this.queries,width:e,height:n,thin:1};return{coded:await Tt("map",{...this.where,...o}),keys:e,queries:n}}};
function Ms({part:s,keys:t,queries:e},n){let[o,i]=[t/s.w,e/s.h];return{x:(n.x-s.x)*o,y:(n.y-s.y)*i,w:n.w*o,h:n.h*i}}var Pn=96e6,Nn=2048,It=new Map,Re=new Map;async function At(s,t){let e=`${s} ${t}`,n=It.get(e);if(n)return Ie(e,n),n;let o=$[t],i=o&&u.texts[s]?.layers[o.site],
r=i?.heads[o.head];if(!i||!r)return null;let l=Re.get(e);l||(l=r.served?_n(s,t):Mt.read(u.heads[t],u.texts[s],i,r,o.head),Re.set(e,l));try{let c=await l;return Ie(
e,c),c}finally{Re.delete(e)}}async function Ot(s,t){let e=await At(s,t);return e&&!e.coded&&(await e.complete(),Ie(`${s} ${t}`,e)),e}function Ie(s,t){It.delete(
s),It.set(s,t);let e=0;for(let n of It.values())e+=n.bytes;for(let[n,o]of It){if(e<=Pn||n===s)break;It.delete(n),e-=o.bytes}}async function _n(s,t){let e=u.texts[s],
n=$[t],o=e.layers[n.site],i={text:s,layer:o.label,head:n.head},{queries:r,keys:l}=o;if(Math.max(r,l)>Nn)return new N(u.heads[t],e,o,i);let c=new Mt(u.heads[t],e,
o),h={x:0,y:0,w:l,h:r,width:l,height:r},[d,m]=await Promise.all([Tt("map",{...i,...h}),Tt("norms",i)]);return c.coded=d,c.norms=ht(m),c}async function wt(s,t,e){
return s instanceof N?s.fetchWeights(t,e):t?s.row(e):(await s.complete(),s.column(e))}function Ts(s,t,e,n){let o=new Int32Array(n+1);for(let i=0;i<=n;i+=1)o[i]=Math.min(e,Math.floor(s+i/n*t+1e-9));return o}function Pe({coded:s,keys:t,queries:e},n,o,i){
let r=fs(),l=new ImageData(o,i),c=new Uint32Array(l.data.buffer),h=Ts(n.x,n.w,t,o),d=Ts(n.y,n.h,e,i),m=new Uint8Array(o),p=-1;for(let f=0;f<i;f+=1){let[x,v]=[d[f],
Math.max(d[f]+1,d[f+1])],q=x===p&&v===x+1,A=f*o;if(q){c.copyWithin(A,A-o,A);continue}m.fill(0);for(let g=x;g<v&&g<e;g+=1)for(let R=0,W=g*t;R<o;R+=1){let X=Math.
min(t,Math.max(h[R]+1,h[R+1])),K=m[R];for(let ot=h[R];ot<X;ot+=1)s[W+ot]>K&&(K=s[W+ot]);m[R]=K}p=v===x+1?x:-1;for(let g=0;g<o;g+=1)c[A+g]=r[m[g]]}return l}async function As(s,t){
let e=a("canvas",{class:"thumb","aria-hidden":"true"});z(e,t,t);let n=Math.round(t*Ct()),o=await s.preview(n),i={x:0,y:0,w:o.keys,h:o.queries};return Dt(e).putImageData(
Pe(o,i,n,n),0,0),e}var Ne=s=>s.reduce((t,e)=>e>t?e:t,0),Kt=56;function Os(s,t,{left:e,width:n,window:o}){let i=z(s,e+n,Kt),r=Math.max(1e-9,Ne(t)),l=n/o.w;i.fillStyle=
M("--dim"),i.font=`11px ${D}`,i.textAlign="right",i.textBaseline="top",i.fillText(b(r),e-6,2),i.textBaseline="bottom",i.fillText("0",e-6,Kt-2),i.fillStyle=M("--\
line"),i.fillRect(e,Kt-1,n,1),i.fillStyle=M("--accent");let c=Math.min(t.length,o.x+o.w);for(let h=Math.floor(o.x);h<c;h+=1){let d=t[h]/r*(Kt-8),m=e+(h-o.x)*l;m+
l<=e||d<=.2||i.fillRect(Math.max(e,m),Kt-1-d,Math.max(1,l-(l>4?1:0)),d)}}var jn=5,Wn=.04,Pt=2e3,Nt=class{constructor(t,{hover:e,pick:n,label:o}){this.sequence=t,this.from=0,this.spans=[],this.shades=new Int8Array(0),this.marked=null,
this.painted=[null,null],this.arcs=_("svg",{class:"arcs","aria-hidden":"true"}),this.text=a("p",{class:"tokens","aria-label":o}),this.part=t.shown.length>Pt?a("\
p",{class:"part"}):null,this.box=a("div",{class:"reading"},this.arcs,this.part,this.text),this.fill(0);let i=(r,l)=>this.text.addEventListener(r,c=>{let h=Es(c);
h!==null&&l(h)});i("pointerover",e),i("focusin",e),i("click",n),this.text.addEventListener("pointerleave",()=>e(null)),this.text.addEventListener("keydown",r=>this.
onKey(r,n))}fill(t){let{shown:e,special:n,joined_to_previous:o}=this.sequence,i=Math.min(Pt,e.length-t);if(this.from=t,this.spans=Array.from({length:i},(c,h)=>{
let d=e[t+h],m=d.length>40?C(d,400):null,f={class:n[t+h]?"token special":"token","data-i":t+h,role:"button",tabindex:h?"-1":"0",title:m};return a("span",f,C(d,40))}),
this.shades=new Int8Array(i),this.marked=null,this.text.replaceChildren(...this.spans.flatMap((c,h)=>[o[t+h]&&h?"":" ",c])),!this.part)return;let r=(c,h)=>{let d=c<
0||c>=e.length;return a("button",{type:"button",disabled:d,onclick:()=>this.showFrom(c)},h)},l=`tokens ${t} to ${t+i-1} of ${e.length}`;this.part.replaceChildren(
r(t-Pt,"earlier"),l,r(t+Pt,"later"))}showFrom(t){this.fill(t),this.draw()}onKey(t,e){let n=Es(t);if(n===null)return;let o={ArrowLeft:-1,ArrowRight:1,Enter:0," ":0}[t.
key];if(o===void 0)return;if(t.preventDefault(),t.stopPropagation(),o===0){e(n);return}let i=this.spans[n-this.from+o];i&&(this.spans[n-this.from].tabIndex=-1,i.
tabIndex=0,i.focus())}paint(t,e){this.painted=[t,e],this.part&&e!==null&&!this.spanOf(e)&&this.fill(Math.floor(e/Pt)*Pt),this.draw()}spanOf(t){return this.spans[t-
this.from]}draw(){let[t,e]=this.painted,n=t?Math.max(1e-9,Ne(t)):1;this.spans.forEach((o,i)=>{let r=t?t[this.from+i]:0,l=r>.001||r>0&&this.part?Math.sqrt(r/n):0,
c=l>.02?Math.round(72*l):0;c!==this.shades[i]&&(this.shades[i]=c,o.style.backgroundColor=c?`color-mix(in srgb, var(--shade) ${c}%, transparent)`:"",o.style.color=
c>0?"var(--ink)":"")}),this.marked?.classList.remove("from"),this.marked=e===null?null:this.spanOf(e)??null,this.marked?.classList.add("from"),this.arcs.replaceChildren(),
t&&e!==null&&this.marked&&this.drawArcs(t,e,this.marked)}drawArcs(t,e,n){let o=this.box.getBoundingClientRect(),i=l=>{let c=l.getBoundingClientRect();return[c.left+
c.width/2-o.left,c.top-o.top]},r=i(n);for(let l of Gt(t,jn,Wn,c=>c!==e&&this.spanOf(c)!==void 0)){let c=i(this.spanOf(l)),h=Math.min(r[1],c[1])-Math.min(34,8+Math.
abs(c[0]-r[0])/9),d=_("path",{d:`M${r} C${r[0]},${h} ${c[0]},${h} ${c}`,fill:"none","stroke-width":(.8+3*Math.sqrt(t[l])).toFixed(2),"stroke-opacity":(.35+.6*t[l]).
toFixed(2)});this.arcs.append(d)}}};function Es(s){let t=Zt(s,".token");return t?Number(t.dataset.i):null}function Gt(s,t,e,n=()=>!0){let o=[];for(let i=0;i<s.length;i+=
1)s[i]>=e&&n(i)&&o.push(i);return o.sort((i,r)=>s[r]-s[i]).slice(0,t)}var Hn=3,Bn=3,_e=24,Fn=.02,ue=class{constructor(){this.list=a("ol");let t=U("Three rows of this text","example rows");this.element=a("section",{class:"pairs row\
s"},t,this.list)}async show(t){let e;if(t instanceof N){let l=await Ce("pairs",t.where).catch(()=>null);if(!l)return;e=await l.json()}else e=zn(t);let n=new Set,
o=l=>n.size<n.add(t.rows.shown[l]).size,i=e.map(([,l])=>l).filter(o).slice(0,Hn),r=await Promise.all(i.map(l=>wt(t,!0,l))).catch(()=>null);r&&this.list.replaceChildren(
...i.map((l,c)=>Dn(t,l,r[c])))}};function Dn(s,t,e){let n=l=>a("span",{class:"word"},C(l,14)),o=Gt(e,Bn,Fn).map(l=>a("span",{},n(s.columns.shown[l])," ",a("smal\
l",{},b(e[l])))),i=B({row:String(t),dir:void 0}),r=a("a",{href:i,title:`token ${t}`},n(s.rows.shown[t]));return a("li",{},r," → ",a("span",{class:"keys"},o))}
function zn({coded:s,keys:t,queries:e,square:n,rows:o,columns:i}){let r=[],l=-1;for(let c=0;s&&c<e;c+=1)if(!o.special[c])for(let h=0,d=c*t;h<t;h+=1)s[d+h]<=l||i.
special[h]||n&&c===h||(r.push([s[d+h],c,h]),r.sort((m,p)=>p[0]-m[0]),r.length>_e&&r.pop(),r.length===_e&&(l=r[_e-1][0]));return r.map(([c,h,d])=>[(c/255)**2,h,d])}var Ls=new Map;async function me(s){let t=Ls.get(s.name);t||(t=bt(s.line),Ls.set(s.name,t));let e=await t,n=u.pairs?.heads.length??0;return(o,i)=>{let r=e[o*n+i];
return r===255?NaN:s.low+r/254*(1-s.low)}}var Cs={cka:"CKA",attention:"attention distance",write:"write overlap",read:"read overlap"},gt=({name:s})=>Object.hasOwn(
Cs,s)?Cs[s]:s,qs={correlation:"Do two heads write the same vectors?",cka:"Do two heads write the same, up to a rotation?",attention:"Do two heads look at the sa\
me tokens?",write:"Do two heads write into the same directions, by their weights?",read:"Do two heads read from the same directions, by their weights?"},je=({name:s})=>Object.
hasOwn(qs,s)?qs[s]:s,pe=s=>`${je(s)} ${F(s.meaning)}`,Yt=s=>s.name==="attention";function Rs(s,t,e,n){let o=Yt(s)?1:-1,i=[];return e.forEach((r,l)=>{for(let c of e.
slice(l+1)){let h=t(r,c);Number.isNaN(h)||i.push(r<c?[r,c,h]:[c,r,h])}}),i.sort((r,l)=>o*(r[2]-l[2])||r[0]-l[0]||r[1]-l[1]).slice(0,n)}var Is={stack:void 0,layer:void 0,head:void 0,row:void 0,second:void 0},Un=4,Qt=class{constructor(t,e=!1){this.rows=new ue;let n=`Numbers of ${u.heads[t]}`,o=u.
texts.length?this.rows.element:null,i=[Vn(t),Kn(t),o,Jn(t),Zn(t),so(t),to(t),io(t,e)];this.element=a("aside",{class:"panel","aria-label":n},i)}};function Vn(s){
let t=lt(s);if(!t)return null;let e=J(s),n=k.shares.map((i,r)=>{let[l,c]=[T(`${i.name}_low`,s),T(`${i.name}_high`,s)],h=w(i.name,F(i.meaning)),d=a(e.includes(i)?
"b":"span",{},i.name," ",h);return Ps(d,{label:i.name,value:t[r],color:i.colour,low:l,high:c})}),o=a("p",{class:"dim"},"Parts of log n; the lines are 95 % inter\
vals.");return a("section",{class:"shares"},U("What decides where it looks","shares"),n,o)}function Kn(s){if(!O("kind"))return null;let t=P(s),e=u.why?.[u.heads[s]],
n=Object.keys(u.kinds).map(l=>({name:l,score:T(`kind:${l}`,s)})).sort((l,c)=>+(c.name===t)-+(l.name===t)||(c.score??0)-(l.score??0)),o=n.slice(0,Un).map(({name:l,
score:c})=>c===null?null:Qn(s,l,c,l===t)),i=e?`${V.evidence} Here: ${e}.`:V.evidence,r=a("p",{class:"dim"},"Bars are scores, ticks are thresholds. ",w("score"));
return a("section",{},U("Kind"),a("p",{},a("b",{},st(s))),a("p",{class:"dim"},`${Gn(s,n)} `,w("evidence",i)),a("div",{class:"scores"},o,r),Yn(s))}function Gn(s,t){
let e=t.find(({score:r})=>r!==null);if(!e)return"No kind could be measured.";let{threshold:n}=u.kinds[e.name],o=b(e.score);if(e.name!==P(s))return`${`Closest: ${G(
e.name)}, with a score of ${o}.`} Its 95 % interval would have to be above ${n} and above chance.`;let i=b(T("kind_control",s));return`Its score is ${o}: clear\
ly above the threshold (${n}) and above chance (${i}).`}function Yn(s){let t={position:"positions, not words",content:"words, not positions",both:"positions and\
 words"},e=H("driven",s);if(!Object.hasOwn(t,e))return null;let n=T("driven_score",s),o=`Tokens were shuffled. The value is the overlap of the maps at the same \
positions, minus the overlap at the same words: ${n!==null&&n>0?"+":""}${b(n)}.`;return a("p",{class:"dim"},`Follows ${t[e]} `,w("follows",o))}function Qn(s,t,e,n){
let{threshold:o}=u.kinds[t],[i,r,l]=["kind_control","kind_low","kind_high"].map(d=>n?T(d,s):null),c=`${G(t)} ${b(e)}, threshold ${o}`,h=a("span",{},G(t)," ",de(
t));return Ps(h,{label:c,value:e,color:zt(t),threshold:o,chance:i,low:r,high:l})}function Ps(s,{label:t,value:e,color:n,threshold:o,chance:i=null,low:r,high:l}){
let c=d=>`${(100*Math.max(0,Math.min(1,d))).toFixed(1)}%`,h=_("svg",{class:"score",role:"img","aria-label":t});return h.append(_("rect",{x:0,y:5,width:"100%",height:6,
class:"track",rx:3}),_("rect",{x:0,y:5,width:c(e),height:6,rx:3,fill:n})),o!==void 0&&h.append(_("rect",{x:c(o),y:1,width:1.5,height:14,class:"tick"})),r!==null&&
l!==null&&h.append(_("line",{x1:c(r),x2:c(l),y1:8,y2:8,class:"ends"})),i!==null&&h.append(_("circle",{cx:c(i),cy:8,r:3,class:"chance"})),a("div",{class:"scoreli\
ne"},s,h,a("span",{class:"value"},b(e)))}function Jn(s){if(!u.importance)return null;let t=T("rank",s),e=ee(s),n=e===null?"":` ± ${L(e,1)}`,o=t===null?"":`, ra\
nk ${t} of ${u.heads.length}`,i=`${F(O(u.importance)?.meaning??"")} ${F(u.corpus.loss??"")}`.trim();return a("section",{},U("Importance"),a("p",{},a("b",{},L(ut(
s),2)),`${n}${o}.`),Xn(s),a("p",{class:"dim"},`${V.importance.split(".")[0]}. `,w("how importance is measured",i)))}function Xn(s){if(!u.curve||!Z.has(u.heads[s]))
return null;let e=`Can be pruned${Z.size>1?`, together with ${Z.size-1} others,`:""} for less than ${Lt(u.curve.limit)} of quality. `;return a("p",{},e,a("a",{href:B(
{...Is,view:"pruning"})},"Show pruning →"))}function Zn(s){let t=H("most_similar",s),e=j.get(t);if(e===void 0)return null;let n=`, CKA similarity ${b(T("most_\
similar_cka",s))} `,o=B({...Is,view:"similarity",pick:u.heads[s]});return a("section",{},U("Most similar","most similar"),a("p",{},a("a",{href:E(e)},t),n,w("CKA")),
a("p",{},a("a",{href:B({second:t})},"Show side by side →")),a("p",{},a("a",{href:o},"Show all pairs →")))}function to(s){let t=u.often?.[u.heads[s]];if(!t?.
length)return null;let e="For every token, the other token with the largest weight, special tokens excluded: mean weight × number of times. The pairs with the m\
ost weight in total come first.",n=t.map(([i,r,l,c])=>eo(i,r,`${b(c)} × ${l}`)),o=a("h3",{},"Strongest pairs over the corpus ",w("pairs",e));return a("section",
{class:"pairs often"},o,a("ol",{},n))}function eo(s,t,e){let n=o=>a("span",{class:"word"},C(o,14));return a("li",{},n(s)," → ",n(t),a("span",{class:"value"},e))}
function so(s){let t=[];for(let h=-64;h<=64;h+=1){let d=T(`offset${h<0?h:`+${h}`}`,s);d!==null&&t.push([h,d])}if(t.length<3)return null;let e=Math.max(...t.map(
([,h])=>h),1e-9),n=100/t.length,i=_("svg",{class:"offsets",role:"img","aria-label":"mean weight by distance",...{viewBox:"0 0 100 40",preserveAspectRatio:"none"}});
t.forEach(([h,d],m)=>{let p=d/e*38,[f,x]=[(m*n+n*.12).toFixed(2),(40-p).toFixed(2)],v={width:(n*.76).toFixed(2),height:p.toFixed(2)},q=_("rect",{x:f,y:x,...v,class:h===
0?"zero":""});q.append(_("title",{},`${h>0?"+":""}${h}: ${b(d)}`)),i.append(q)});let[r,l]=[t[0][0],t[t.length-1][0]],c=[`${-r} back`,"itself",`${l} ahead`].map(
h=>a("span",{},h));return a("section",{},U("Where it looks, by distance","by distance"),i,a("p",{class:"ends dim"},c),a("p",{class:"dim"},`Highest bar: ${b(e)} \
of the weight, mean over the corpus.`))}var no=["kind","most_similar","second","third","order$","cluster$","driven","leading$"],oo=new RegExp(`^(offset[+-]|(spr\
ead|rest|position|word|match)_|${no.join("|")})`);function io(s,t){let e=Object.keys(u.table??{}).filter(c=>!oo.test(c));if(!e.length)return null;let n=a("tbody"),
o=()=>{if(!(!l.open||n.firstChild))for(let c of e){let h=xt(c,s),d=typeof h=="string"?h:L(h),m=h===null?is(c,s):"",p=a("td",{},d,m?w(`missing: ${c}`,F(m)):null),
f=a("th",{scope:"row"},c," ",nt(c));n.append(a("tr",{},f,p,a("td",{class:"dim"},O(c)?.unit)))}},i=a("table",{class:"measures"},n),r=a("summary",{},`All ${e.length}\
 measures`),l=a("details",{open:t,ontoggle:o},r,i);return l}var ro=["kind_score","entropy","max_weight","distance","first","special","previous","output_norm"];function Ns(s,t){
let n=[u.importance,...ro].filter(c=>c!==null&&O(c)!==null).map(c=>{let h=a("th",{scope:"row"},c," ",nt(String(c)));return a("tr",{},h,[s,t].map(d=>a("td",{},L(
T(c,d)))))}),o=O("kind")?a("tr",{},a("th",{scope:"row"},"kind ",w("kind")),[s,t].map(c=>a("td",{},rs(c)))):null,i=[s,t].map(c=>a("th",{scope:"col"},u.heads[c])),
r=a("thead",{},a("tr",{},a("td"),i)),l=a("table",{class:"measures"},r,a("tbody",{},o,n));return a("div",{class:"pair"},U("Both heads in numbers","measures"),l)}
function _s(s,t){let e=a("span",{class:"alikeness"}),{pairs:n}=u;if(!n)return e;let[o,i]=[s,t].map(r=>n.heads.indexOf(u.heads[r]));return Promise.all(n.measures.
map(me)).then(r=>{e.append("Similarity: "),r.forEach((l,c)=>{let h=n.measures[c],d=`${c?", ":""}${gt(h)} ${b(l(o,i))} `;e.append(d,w(gt(h),pe(h)))})}),e}var ao=150;function lo(s){let t=[{key:"head",title:"Head",help:w("head"),value:e=>e,show:e=>u.heads[e]}];if(O("kind")){let e=i=>st(i)||null;t.push({key:"kind",title:"\
Kind",help:w("kind"),value:e,show:We,words:!0});let n=i=>T("kind_score",i),o=i=>b(n(i));Ut()||t.push({key:"score",title:"Score",help:w("score"),value:n,show:o})}
if(Ut()){let[e,n]=["shares","Shares"];t.push({key:e,title:n,help:w("shares"),value:co,show:ho,words:!0})}if(u.importance){let e=nt(u.importance);t.push({key:"im\
portance",title:"Importance",help:e,value:ut,show:uo})}if(O("most_similar")){let e=i=>T("most_similar_cka",i),[n,o]=["most_similar","Most similar"];t.push({key:n,
title:o,help:w("most similar"),value:e,show:mo,words:!0})}if(s!=="kind"&&s!=="shares"&&s!==u.importance&&O(s)){let e=o=>xt(s,o),n=o=>{let i=e(o);return typeof i==
"string"?i:L(i)};t.push({key:s,title:s,help:nt(s),value:e,show:n})}return t}function We(s){let t=a("i",{class:"dot","aria-hidden":"true"});return t.style.background=
P(s)?le(P(s)):"transparent",[t,st(s)||L(null)]}function co(s){let t=lt(s),e=k.shares.indexOf(J(s)[0]);return t&&e>=0?2*e-t[e]:null}function ho(s){let t=lt(s);if(!t)
return L(null);let e=k.shares.map(({name:i},r)=>`${i} ${b(t[r])}`).join(", "),n=_("svg",{class:"sharebar",role:"img","aria-label":e,viewBox:"0 0 1 1"});n.setAttribute(
"preserveAspectRatio","none");let o=0;return t.forEach((i,r)=>{n.append(_("rect",{x:o,y:0,width:Math.max(0,i),height:1,fill:k.shares[r].colour})),o+=i}),n}function uo(s){
let t=ee(s),e=t===null?null:a("small",{},` ± ${L(t,1)}`);return[L(ut(s),2),e]}function mo(s){let t=H("most_similar",s);return t?[`${t} `,a("small",{},b(T("most\
_similar_cka",s)))]:L(null)}function po(s,t,e){return[...s].sort((n,o)=>{let[i,r]=[t.value(n),t.value(o)];if(i===null||r===null)return+(i===null)-+(r===null)||n-
o;let l=i<r?-1:i>r?1:0;return(e?-l:l)||n-o})}function js(s,t,e){let n=lo(e),o=A=>n.find(g=>g.key===A),i=o(s.sort)??o("importance")??n[0],r=["head","kind","share\
s"].includes(i.key),l=(s.down??(r?"0":"1"))==="1",c=po(t,i,l),h=n.map(A=>{let g=A===i,R=()=>S({sort:A.key,down:g?l?"0":"1":void 0}),W=g?l?" ↓":" ↑":"",X=g?l?
"descending":"ascending":"none",K=a("button",{type:"button",onclick:R},A.title+W);return a("th",{scope:"col",class:A.words?"words":"","aria-sort":X},K,A.help)}),
d=a("tbody"),m=a("button",{type:"button",class:"more"}),p=()=>{let A=d.rows.length;d.append(...c.slice(A,A+ao).map(g=>fo(g,n))),m.hidden=d.rows.length>=c.length,
m.textContent=`Show more of ${c.length} heads`};m.addEventListener("click",p),p();let f=a("caption",{class:"quiet"},"All heads"),x=a("table",{class:"heads"},f,a(
"thead",{},a("tr",{},h)),d),v={class:"scroll",tabindex:"0",role:"region","aria-label":"Table of heads"},q=a("button",{type:"button",onclick:ko},"Download CSV");
return a("div",{class:"table"},a("div",v,x,m),a("p",{class:"tail"},q))}function fo(s,t){let e=t.map(({show:n,words:o},i)=>i===0?a("th",{scope:"row"},a("a",{href:E(
s)},n(s))):a("td",{class:o?"words":""},n(s)));return a("tr",{"data-head":u.heads[s]},e)}var wo=/^[=+\-@\t\r]/;function go(s){return s===null?"":typeof s=="numbe\
r"?String(s):`"${(wo.test(s)?`'${s}`:s).replaceAll('"','""')}"`}function ko(){let s=Object.keys(u.table??{}),t=u.heads.map((n,o)=>{let{site:i,number:r}=$[o];return[
n,u.sites[i].layer,r,...s.map(l=>xt(l,o))]}),e=[["head","layer","number",...s],...t].map(n=>`${n.map(go).join(",")}\r
`);Xt(new Blob(e,{type:"text/csv"}),"heads.csv")}var yo=84,fe=class{constructor(t,e){this.text=e,this.site=-1,this.slots=[],this.element=a("section",{class:"strip"}),this.show(t)}show(t){$[t].site!==this.site&&
this.fill($[t].site);for(let{head:e,slot:n}of this.slots)n.href=E(e),n.className=e===t?"slot on":"slot"}fill(t){this.site=t;let{label:e,heads:n}=u.sites[t];this.
slots=Array.from({length:n},(i,r)=>{let l=dt[t]+r,c=a("span",{class:"hole"}),h=u.heads[l],d=a("a",{"aria-label":`${h} ${st(l)}`},c,a("span",{class:"name"},h));return{
head:l,slot:d,picture:c}}),this.element.setAttribute("aria-label",`Heads of ${e}`);let o=a("div",{class:"slots"},this.slots.map(({slot:i})=>i));this.element.replaceChildren(
a("h3",{},`All heads of ${e}`),o),this.drawAll()}async drawAll(){let{slots:t}=this;if(u.texts.length)for(let{head:e,slot:n,picture:o}of t){if(await Jt(),t!==this.
slots||n!==t[0].slot&&!n.isConnected)return;let i=await At(this.text,e).catch(()=>null);i&&o.replaceChildren(await As(i,yo).catch(()=>""))}}};var y=104,bo=22,Ws=11,xo=720,Hs=4,we=class{constructor({point:t,pick:e,drawn:n}){this.point=t,this.pick=e,this.drawn=n,this.map=null,this.window={x:0,y:0,w:1,h:1},
this.mark={row:null,column:null},this.width=0,this.height=0,this.room=0,this.dragged=!1,this.painted=null,this.pointers=new Map,this.canvas=a("canvas",{class:"m\
ap",role:"img",tabindex:"-1"}),this.box=a("div",{class:"mapbox"},this.canvas),this.canvas.addEventListener("wheel",o=>this.onWheel(o),{passive:!1}),this.canvas.
addEventListener("pointerdown",o=>this.onDown(o)),this.canvas.addEventListener("pointermove",o=>this.onMove(o)),this.canvas.addEventListener("pointerup",o=>this.
onUp(o)),this.canvas.addEventListener("pointercancel",o=>this.pointers.delete(o.pointerId)),this.canvas.addEventListener("pointerleave",()=>this.point(null)),this.
canvas.addEventListener("dblclick",()=>this.showAll())}get place(){return{left:y,width:this.width,window:this.window}}show(t){let e=this.map&&this.map.queries===
t.queries&&this.map.keys===t.keys;this.map=t,e||(this.window={x:0,y:0,w:t.keys,h:t.queries});let n=`${t.queries} queries down, ${t.keys} keys across`,o=`Attenti\
on map of ${t.name}: ${n}. The text below has the same weights.`;this.canvas.setAttribute("aria-label",o)}clear(){z(this.canvas,this.canvas.clientWidth,this.canvas.
clientHeight)}showAll(){this.map&&(this.window={x:0,y:0,w:this.map.keys,h:this.map.queries},this.draw())}zoom(t,e=this.width/2,n=this.height/2){let{map:o,window:i}=this;
if(!o)return;let[r,l]=[i.x+e/this.width*i.w,i.y+n/this.height*i.h],c=Math.max(Math.min(Hs,o.keys),Math.min(o.keys,i.w/t)),h=Math.max(Math.min(Hs,o.queries),Math.
min(o.queries,i.h/t));this.window={w:c,h,x:r-e/this.width*c,y:l-n/this.height*h},this.draw()}clampWindow(){let{map:t,window:e}=this;t&&(e.x=Math.max(0,Math.min(
t.keys-e.w,e.x)),e.y=Math.max(0,Math.min(t.queries-e.h,e.y)))}onWheel(t){if(t.deltaY>0&&this.window.w>=(this.map?.keys??0)&&!t.ctrlKey&&!t.metaKey)return;t.preventDefault();
let[n,o]=it(t,this.canvas);this.zoom(Math.exp(-t.deltaY/300),n-y,o-y)}onDown(t){this.canvas.setPointerCapture(t.pointerId),this.pointers.set(t.pointerId,it(t,this.
canvas)),this.dragged=!1}onMove(t){let e=it(t,this.canvas),n=this.pointers.get(t.pointerId);if(!n){this.point(this.cellAt(e));return}let o=[...this.pointers].find(
([i])=>i!==t.pointerId)?.[1];if(o){let i=c=>Math.hypot(c[0]-o[0],c[1]-o[1]),[r,l]=[(e[0]+o[0])/2-y,(e[1]+o[1])/2-y];this.dragged=!0,this.zoom(i(e)/Math.max(1,i(
n)),r,l)}else if(this.dragged||Math.hypot(e[0]-n[0],e[1]-n[1])>4)this.dragged=!0,this.window.x-=(e[0]-n[0])/this.width*this.window.w,this.window.y-=(e[1]-n[1])/
this.height*this.window.h,this.draw();else return;this.pointers.set(t.pointerId,e)}onUp(t){if(this.pointers.delete(t.pointerId),this.dragged)return;let e=this.cellAt(
it(t,this.canvas));e&&this.pick(e)}cellAt([t,e]){let{map:n,window:o}=this;if(!n||t<y||e<y)return null;let i=Math.floor(o.x+(t-y)/this.width*o.w),r=Math.floor(o.
y+(e-y)/this.height*o.h);return r>=0&&i>=0&&r<n.queries&&i<n.keys?[r,i]:null}observeWidth(){this.room=this.box.clientWidth,new ResizeObserver(()=>{let t=this.box.
clientWidth;t!==this.room&&(this.room=t,this.draw())}).observe(this.box)}draw(){let{map:t}=this;if(!t)return;this.clampWindow(),this.room||this.observeWidth(),this.
width=Math.max(80,Math.min(this.room||560,xo)-y),this.height=Math.max(80,Math.min(1.6*this.width,this.width*t.queries/t.keys));let e=z(this.canvas,this.width+y,
this.height+y),n=Math.round(y*Ct()),o=this.paint(t);this.canvas.toggleAttribute("data-waiting",t instanceof N&&t.asking!==null),o&&e.putImageData(o,n,n),this.drawFrame(
e,t),this.drawMarks(e),this.drawn()}paint(t){let e=Ct(),[n,o]=[Math.round(this.width*e),Math.round(this.height*e)],i=()=>this.box.isConnected&&this.draw(),r=t instanceof
N?t.picture(this.window,n,o,i):null,l=t.coded??r?.coded;if(!l)return null;let c=[...Object.values(this.window),n,o].join(" ");if(this.painted?.key!==c||this.painted.
from!==l){let h=r??{coded:l,keys:t.keys,queries:t.queries},d=r?Ms(r,this.window):this.window;this.painted={key:c,from:l,image:Pe(h,d,n,o)}}return this.painted.image}drawFrame(t,e){
let{window:n,width:o,height:i}=this,[r,l]=[o/n.w,i/n.h];t.strokeStyle=M("--line"),t.strokeRect(y-.5,y-.5,o+1,i+1),t.font=`600 12px ${D}`,t.fillStyle=M("--ink"),
t.textBaseline="middle",t.textAlign="center",t.fillText(o<180?"key":"key: the token looked at",y+o/2,8),et(t,i<180?"query":"query: the token that looks",8,y+i/2),
t.textAlign="right";let c=(m,p,f)=>(t.fillStyle=M(f?"--ink":p?"--faint":"--dim"),t.font=`${f?"600 ":""}11px ${D}`,vo(t,m,y-bo-8)),h=Math.max(1,Math.ceil(Ws/l));
for(let m=Math.ceil(n.y/h-1e-9)*h;m<Math.min(e.queries,n.y+n.h);m+=h){let p=y+(m+.5-n.y)*l;p<y+2||p>y+i-2||t.fillText(c(e.rows.shown[m],e.rows.special[m],m===this.
mark.row),y-6,p)}t.textAlign="left";let d=Math.max(1,Math.ceil(Ws/r));for(let m=Math.ceil(n.x/d-1e-9)*d;m<Math.min(e.keys,n.x+n.w);m+=d){let p=y+(m+.5-n.x)*r;if(p<
y+2||p>y+o-2)continue;let f=c(e.columns.shown[m],e.columns.special[m],m===this.mark.column);et(t,f,p,y-6)}}drawMarks(t){let{window:e,width:n,height:o}=this,{row:i,
column:r}=this.mark,[l,c]=[n/e.w,o/e.h];t.save(),t.beginPath(),t.rect(y,y,n,o),t.clip(),t.strokeStyle=M("--mark"),t.lineWidth=1.5,i!==null&&t.strokeRect(y-2,y+(i-
e.y)*c,n+4,Math.max(2,c)),r!==null&&t.strokeRect(y+(r-e.x)*l,y-2,Math.max(2,l),o+4),t.restore()}savePng(){let{map:t}=this;if(!t)return;let e=a("canvas",{width:this.
canvas.width,height:this.canvas.height}),n=Dt(e);n.fillStyle=M("--paper"),n.fillRect(0,0,e.width,e.height),n.drawImage(this.canvas,0,0),e.toBlob(o=>o&&Xt(o,`${t.
name}.png`))}};function vo(s,t,e){let n=C(t,18);for(;n.length>2&&s.measureText(n).width>e;)n=`${Array.from(n).slice(0,-2).join("")}…`;return n}function ge(s){let t=rt(s.text,u.texts.length)??-1;return u.texts[t]?t:u.texts.findIndex(Boolean)}function ke(s){let{texts:t}=u;if(!t.length)return[];let{source:e}=t[s],
n=new Map,o=[];t.forEach((l,c)=>{n.has(l.source)||n.set(l.source,c),l.source===e&&o.push([String(c),`${l.window[0]+1} of ${l.window[1]}`])});let i=l=>S({text:l,
row:void 0}),r=[];if(n.size>1){let l=[...n.values()].map(c=>[String(c),t[c].name]);r.push(Y("Text",l,String(n.get(e)),i))}return o.length>1&&r.push(Y("Window",o,
String(s),i)),[...r,He()]}function He(s={}){if(!u.served)return null;let e=a("textarea",{rows:"5","aria-label":"Your text",placeholder:"Type or paste a text"}),
n=a("button",{type:"button",class:"primary"},"Show this text"),o=a("span",{class:"dim",role:"status"});return n.addEventListener("click",async()=>{if(!e.value.trim()){
o.textContent="Type a text first.",e.focus();return}n.disabled=!0,o.textContent="The model is reading it …";try{let{texts:i,first:r}=await $s(e.value);i.forEach(
(l,c)=>u.texts[r+c]=l),S({...s,text:String(r),row:void 0})}catch(i){o.textContent=i instanceof Error?i.message:String(i)}n.disabled=!1}),a("details",{class:"own"},
a("summary",{},"Try your own text"),e,a("p",{},n," ",o))}var _t="looks",jt="seen",$o=1e6,So=80,Mo=70;function Ds(s,t){let e=s.second===void 0?void 0:j.get(s.second),n=new Be(s,t,e??null);return{element:n.element,start:()=>n.
start(),resize:()=>n.paint(),stop:()=>n.stop(),moveTo:(o,i)=>n.moveTo(o,i)}}function Bs(s){let{stack:t,layer:e,head:n,row:o,...i}=s;return JSON.stringify(i)}var Be=class{constructor(t,e,n){
this.state=t,this.head=e,this.second=n,this.text=ge(t),this.looks=t.dir!==jt,this.live=!0,this.turn=0,this.pinned=null,this.token=null,this.cell=null,this.timer=
0,this.texts=null,this.spoken=a("p",{class:"said"}),this.panes=(n===null?[e]:[e,n]).map(c=>this.makePane(c)),this.textSide=a("div",{class:"textside"}),this.panel=
n===null?new Qt(e):null,this.top=Fs(e,n),this.strip=new fe(e,this.text),this.compare=this.compareControl();let o=this.panel?.element??Ns(e,n),i=a("div",{class:"\
panes"},this.panes.map(c=>c.box)),r=a("div",{class:"mapside"},this.controls(),i,this.textSide),l=a("div",{class:n===null?"scene":"scene both"},r,o);this.element=
a("div",{class:"headview"},this.top,l,this.strip.element)}makePane(t){let e=a("p",{class:"cellnote"}),n=a("canvas",{class:"profile","aria-hidden":"true"}),o=new we(
{point:h=>{this.cell=h,this.aim(h&&h[this.looks?0:1])},pick:h=>this.pin(h[this.looks?0:1]),drawn:()=>this.drawProfiles()}),i=(h,d,m)=>a("button",{type:"button",
"aria-label":m,onclick:d},h),r=a("div",{class:"zoom"});r.append(i("+",()=>o.zoom(1.6),"Zoom in"),i("−",()=>o.zoom(1/1.6),"Zoom out"),i("Whole map",()=>o.showAll(),
"Whole map"),i("PNG",()=>o.savePng(),"Download the map as PNG"));let l=this.second===null?null:a("h3",{},`${u.heads[t]} `,a("small",{},st(t))),c=a("div",{class:"\
under"},To(),r,e);return{head:t,map:null,view:o,profile:n,note:e,box:a("div",{class:"pane"},l,o.box,n,c)}}compareControl(){let t=H("most_similar",this.head),{site:e}=$[this.
head],n=u.heads.filter((l,c)=>$[c].site===e&&l!==u.heads[this.head]),o=[...new Set([t,...n])].filter(Boolean).map(l=>a("option",{value:l})),i=a("input",{list:"o\
thers",placeholder:t?`e.g. ${t}`:"head",size:"9","aria-label":"Compare with head",autocomplete:"off",onchange:()=>{let l=i.value.trim();S({second:j.has(l)?l:void 0})}});
i.value=this.state.second??"";let r=a("label",{},a("span",{},"Compare with"),i);return a("div",{class:"choice"},r,a("datalist",{id:"others"},o))}controls(){let{
norm:t,hide:e}=this.state;return a("div",{class:"controls"},ke(this.text),this.compare,Wt("norm-weighted",t==="1",n=>S({norm:n?"1":void 0}),w("norm-weighted")),
Wt("hide delimiters",e==="1",n=>S({hide:n?"1":void 0}),w("hide delimiters")))}async start(){let t=await Promise.all(this.panes.map(e=>Ot(this.text,e.head))).catch(
()=>[null]);this.live&&this.showMaps(t)}moveTo(t,e){let{map:n}=this.panes[0],o=n!==null&&!(n instanceof N);return this.second===null&&this.texts&&o&&Bs(t)===Bs(
this.state)?this.turnTo(t,e):null}async turnTo(t,e){this.state=t,this.head=e,this.turn+=1;let{turn:n}=this,o=setTimeout(()=>n===this.turn&&this.panes[0].view.clear(),
So),i=await Ot(this.text,e).catch(()=>null);if(clearTimeout(o),!this.live||n!==this.turn)return;this.panes[0].head=e;let r=this.panel?.element.querySelector("de\
tails[open]")!==null,[l,c,h]=[new Qt(e,r),Fs(e,null),this.compareControl()];this.panel?.element.replaceWith(l.element),this.top.replaceWith(c),this.compare.replaceWith(
h),Object.assign(this,{panel:l,top:c,compare:h}),this.strip.show(e),this.showMaps([i])}showMaps(t){let{norm:e,hide:n}=this.state;if(!t[0]){this.texts=null;let r=u.
served?"The map of this head did not arrive.":"The map of this head is not in this page.";this.textSide.replaceChildren(a("p",{class:"dim"},r)),this.panes.forEach(
l=>l.box.remove());return}this.panes.forEach((r,l)=>{r.map=t[l]?.reweighted(e==="1",n==="1")??null,r.map&&r.view.show(r.map)});let o=this.panes[0].map,i=this.token===
this.pinned?null:this.token;this.pinned=rt(this.state.row,this.looks?o.queries:o.keys),this.token=i??this.pinned,(this.texts?.rows.sequence!==o.rows||this.texts.
columns.sequence!==o.columns)&&this.makeTexts(o),this.paint(),this.panel?.rows.show(t[0]),this.second===null&&!u.served&&o.queries*o.keys<=$o&&this.computeAhead()}async computeAhead(){
let{turn:t}=this;for(let e of[[0,1],[1,0],[0,-1],[-1,0]]){if(await Jt(),!this.live||t!==this.turn)return;await Ot(this.text,vt(this.head,e)).catch(()=>null)}}stop(){
this.live=!1;for(let{map:t}of this.panes)t instanceof N&&t.cancel()}makeTexts(t){this.token=this.pinned,this.cell=null;let e=(l,c)=>new Nt(l,{hover:h=>this.aim(
h),pick:h=>this.pin(h),label:c}),n=e(t.rows,t.square?"Tokens of the text":"Tokens that look"),o=t.square?n:e(t.columns,"Tokens that are looked at");this.texts={
rows:n,columns:o};let i=this.second===null?"Text":`Text, as ${u.heads[this.head]} reads it`,{note:r}=u.texts[this.text];this.textSide.replaceChildren(a("div",{class:"\
texttop"},a("h3",{},i),this.directionControl()),r?a("p",{class:"dim"},F(r)):"",...new Set([n.box,o.box]),this.spoken)}directionControl(){let t=(o,i)=>{let l=a("\
input",{type:"radio",name:"way",value:o,onchange:()=>S({dir:o===_t?void 0:o})});return l.checked=o===_t===this.looks,a("label",{},l,i)},e=a("legend",{class:"qui\
et"},"Direction"),n=[t(_t,"where a token looks"),t(jt,"who looks at a token")];return a("fieldset",{class:"way"},e,n,w("direction"))}aim(t){this.token=t??this.pinned,
this.paint()}pin(t){this.pinned=this.pinned===t?null:t,this.token=this.pinned,Et({row:this.pinned===null?void 0:String(t)}),this.paint()}paint(){let{texts:t,token:e,
looks:n}=this,o=this.panes[0].map;if(!t||!o)return;for(let c of this.panes)c.map&&(c.view.mark=n?{row:e,column:null}:{row:null,column:e},c.view.draw(),c.note.textContent=
this.cellText(c.map));let i=e===null?null:o.weights(n,e);e!==null&&!i&&this.fetchWeights(e);let[r,l]=n?[t.rows,t.columns]:[t.columns,t.rows];r===l?r.paint(i,e):
(r.paint(null,e),l.paint(i,null)),this.spoken.textContent=this.tokenText(o,i)}fetchWeights(t){clearTimeout(this.timer),this.timer=window.setTimeout(async()=>{if(!this.
live||t!==this.token)return;let e=this.panes.map(({map:n})=>n&&wt(n,this.looks,t));await Promise.all(e).catch(()=>{}),this.live&&t===this.token&&this.panes[0].map?.
weights(this.looks,t)&&this.paint()},this.pinned===t?0:Mo)}cellText(t){if(!this.cell)return" ";let[e,n]=this.cell,o=t.weights(!0,e);return o?`“${C(t.rows.shown[e],
16)}” → “${C(t.columns.shown[n],16)}” ${o[n].toFixed(3)}`:" "}tokenText(t,e){if(this.token===null)return"Point at a token, in the text or on the map; c\
lick to keep it.";let[n,o]=this.looks?[t.rows,t.columns]:[t.columns,t.rows],i=`“${C(n.shown[this.token],24)}”, token ${this.token}`;if(!e)return`${i}: loadi\
ng …`;let r=c=>`“${C(o.shown[c],16)}” ${b(e[c])}`,l=Gt(e,6,.005).map(r).join(", ")||"no token with much weight";return`${i}, ${this.looks?"looks at":"is l\
ooked at by"} ${l}`}drawProfiles(){for(let{map:t,view:e,profile:n}of this.panes){let o=this.token===null||!this.looks?null:t?.weights(!0,this.token)??null;n.style.
visibility=o?"visible":"hidden",o&&Os(n,o,e.place)}}};function To(){let s=qt(o=>at(Ae(),o)),t=[0,.1,.25,.5,1].map(o=>{let i=a("span",{},String(o));return i.style.
left=`${100*o**k.weight_exponent}%`,i}),e=a("div",{class:"scale"},s,a("div",{class:"ticks","aria-hidden":"true"},t)),n=a("span",{},"attention weight, square-roo\
t scale ",w("weight"));return a("div",{class:"weightbar"},e,n,a("span",{},"reading the map ",w("attention map")))}function Fs(s,t){let e=(i,r,l)=>{let c=vt(s,i),
h=`${l}: ${u.heads[c]}`;return a("a",{href:E(c),class:"step",title:h,"aria-label":h},r)},n=a("span",{class:"steps"});n.append(e([0,-1],"←","previous head"),e(
[0,1],"→","next head"),e([-1,0],"↑","previous layer"),e([1,0],"↓","next layer"));let o=t===null?bs(s):_s(s,t);return a("div",{class:"headtop"},a("h2",{},u.
heads[s]),t===null?null:a("span",{class:"beside"},`and ${u.heads[t]}`),O("kind")&&t===null?a("span",{class:"chip"},We(s)):null,n,a("a",{href:B(oe),class:"back"},
"← All heads"),a("p",{class:"does"},o))}var zs=s=>Y("Show",[[_t,"where the token looks"],[jt,"who looks at the token"]],s?_t:jt,t=>S({dir:t===_t?void 0:t}),w(
"direction"));function Us(s,t){return s==="shares"?Ao(t):s==="kind"?Oo(t):Eo(s)}function Ao(s){let t=k.shares.map(({name:r,colour:l,meaning:c})=>{let h=u.heads.filter((d,m)=>J(
m).some(p=>p.name===r)).length;return a("li",{},Gs("share",r,r,l,h,s),a("span",{class:"meaning"},c))}),e=Vs().filter(([r])=>r&&!Q(r).length),n=e.length?a("div",
{class:"legend"},Ks(e,s)):null;return a("div",{},a("p",{class:"legend"},a("b",{},"What decides where a head looks ",w("shares")),a("span",{class:"dim ringhint"},
"Ring: the five shares. Disc: the share that leads, or two."),a("span",{class:"dim tilehint"},"Colour: the share that leads, or two; weaker where it is small.")),
a("ul",{class:"sharelist"},t),n,a("p",{class:"legend hints"},a("span",{class:"ringhint"},Ys()),Qs(),a("span",{class:"dim"},"Click a share or a kind to list its \
heads.")))}function Oo(s){let t=a("span",{class:"dim"},"Click a kind to list its heads.");return a("div",{class:"legend"},Ks(Vs(),s),Ys(),Qs(),t)}function Vs(){
let s=new Map;for(let t of u.heads.keys()){let e=$t(P(t));s.set(e,(s.get(e)??0)+1)}return[...s].sort((t,e)=>e[1]-t[1])}function Ks(s,t){let e=s.map(([n,o])=>a("\
span",{class:"keyhelp"},Gs("kind",n,G(n),le(n),o,t),de(n)));return[a("b",{},"Kinds of heads ",w("kind")),e]}function Gs(s,t,e,n,o,i){let r=a("i",{class:"dot"});
r.style.background=n;let l=i[s]===t,c=()=>S({share:void 0,kind:void 0,[s]:l?void 0:t}),h=a("button",{type:"button",class:"key","aria-pressed":String(l),onclick:c});
return h.append(r,e,a("small",{},String(o))),h}var Ys=()=>u.importance?a("span",{class:"dim"},"Larger: more important ",w("importance")):null,Qs=()=>Z.size?a("s\
pan",{class:"dim"},"Hollow: can be pruned ",w("can be pruned")):null;function Eo(s){let{ramp:t,low:e,high:n}=Oe(te(s));if(e>n)return a("p",{class:"legend"});let o=qt(
r=>at(t,r)),i=a("span",{class:"dim"},s," ",nt(s));return a("p",{class:"legend"},L(e),o,L(n),i)}var Lo=["entropy","max_weight","distance","first","special","previous","next","self","induction","same_token","output_norm","kind_score","driven_score","most_si\
milar_cka"];function Co(){let s=os(),t=[u.importance??"",...Lo].filter(e=>s.includes(e));return[...t,...s.filter(e=>!t.includes(e))]}function qo(s){let t=s.map(
e=>[e,e]);return O("kind")&&t.unshift(["kind","kind of head"]),Ut()&&t.unshift(["shares","what decides where it looks"]),t}function Ro({share:s,kind:t}){let e=i=>J(
i).some(({name:r})=>r===s),n=i=>$t(P(i))===t,o=i=>u.heads.some((r,l)=>i(l));return o(e)?{share:s,has:e}:o(n)?{kind:t,has:n}:{has:()=>!0}}function Xs(s){let t=qo(
Co()),e=t.find(([m])=>m===s.color)?.[0]??t[0]?.[0]??"kind",{share:n,kind:o,has:i}=Ro(s),r=new ce(e,i),l=a("section",{class:"gridside","aria-label":"Grid of head\
s"});l.append(Po(e,t),r.box,Us(e,{share:n,kind:o}),r.note);let c=[...u.heads.keys()].filter(i),h=u.table?a("section",{class:"tableside","aria-label":"Table of h\
eads"}):null,d=c.length;return n!==void 0&&h?.append(Js(`in which ${n} leads`,Io(n),d)),o!==void 0&&h?.append(Js(`of kind “${G(o)}”`,Ee(o),d)),h?.append(js(
s,c,e)),{element:a("div",{class:"two"},l,h),start:()=>r.draw(),resize:()=>r.draw()}}var Io=s=>F(Q(s)[0]?.meaning??"");function Po(s,t){let e=He({view:"tokens"});
if(!t.length)return a("div",{class:"controls"},e);let n=s==="kind"||s==="shares"?w(s):nt(s);return a("div",{class:"controls"},Y("Colour by",t,s,i=>S({color:i,kind:void 0,
share:void 0}),n),e)}function Js(s,t,e){let o=a("button",{type:"button",onclick:()=>S({kind:void 0,share:void 0})},"Show all heads");return a("p",{class:"filter"},
a("b",{},`${tt(e,"head")} ${s}`),": ",t," ",o)}var kt=320,Fe={left:66,right:12,top:10,bottom:46},No=2;function tn(s){let{curve:t,cost:e}=u,n=e?new ze(e):null,o=a("div",{class:"cutview"});if(!t?.curves.length)
return o.append(a("p",{class:"lead"},"The quality without some of the heads was not measured for this page.")),n&&o.append(n.element),{element:o};let i=new Ue(s,
t,n),r=a("p",{class:"lead"},a("b",{},_o(t))," ",w("can be pruned")," ",jo(t)),l=a("section",{},i.list);return o.append(r,a("div",{class:"two"},a("section",{class:"\
curveside"},i.element),l)),n&&o.append(n.element),{element:o,start:()=>i.draw(),resize:()=>i.draw()}}var en=s=>s.heads??s.curves[0].order.length;function _o(s){
let t=Lt(s.limit,3);return s.prunable?`${s.prunable} of ${en(s)} heads can be pruned for less than ${t} of quality.`:`No head can be pruned for less than ${t} o\
f quality.`}function jo(s){if(!s.cut)return"Heads are switched off together, the least important first, and the model is measured again. Nothing is refitted her\
e: real pruning (multihead prune) does better.";let t=tt(s.fitted??0,"document"),e=`its quality measured on ${s.judged} others`;return`Every point is a pruned m\
odel: its weights were refitted on ${t}, ${e}.`}var ze=class{constructor(t){this.cost=t,this.table=a("div",{class:"scroll wide"});let e=U("What attention costs",
"attention costs"),n=a("p",{class:"dim"},t.title.slice(1).join(" · "));this.element=a("section",{},e,n,this.table),this.show()}show(t){let{heading:e,rows:n}=this.
cost,o=t?.cost,i=o?[e[0],`with ${t.kept} heads`]:e,r=o?n.map(([m,p],f)=>[m,p,o[f]]):n,l=["none",k.format.missing],c=r.filter(([,...m])=>m.some(p=>!l.includes(p))),
h=a("tr",{},a("td"),i.map(m=>a("th",{scope:"col"},m))),d=c.map(([m,...p])=>a("tr",{},a("th",{scope:"row"},m," ",Wo(m)),p.map(f=>a("td",{},f))));this.table.replaceChildren(
a("table",{class:"cost"},a("thead",{},h),a("tbody",{},d)))}};function Wo(s){let t=`cost: ${s}`;return Object.hasOwn(V,t)?w(s,V[t]):null}var Ue=class{constructor(t,e,n){
this.curve=e,this.costs=n,this.total=en(e),this.which=rt(t.method,e.curves.length)??0,this.line=e.curves[this.which],this.points=Zs(this.line.points);let o=rt(t.
gone,this.total+1)??e.prunable,[i,r]=e.cut?[this.points.length-1,this.nearest(o)]:[this.total,o];this.slider=a("input",{type:"range",min:0,max:i,value:r,"aria-l\
abel":"heads removed"}),this.slider.addEventListener("input",()=>{Et({gone:String(this.removed)}),this.draw()}),this.canvas=a("canvas",{class:"curve",role:"img",
"aria-label":"Quality lost against heads kept"}),this.frame=a("div",{class:"gridbox"},this.canvas),this.list=a("div",{class:"gone"});let l=a("h3",{},`Quality lo\
st: ${e.unit} `,w("quality lost")),c=a("label",{class:"slider"},a("span",{},"heads removed"),this.slider);this.element=a("div",{},l,this.frame,c,this.legend())}get removed(){
let t=Number(this.slider.value);return this.curve.cut?this.points[t].gone:t}nearest(t){let e=this.points.map(n=>Math.abs(n.gone-t));return e.indexOf(Math.min(...e))}legend(){
let{curves:t}=this.curve;if(t.length===1)return a("p",{class:"legend dim"},t[0].method," ",w("method"));let e=t.map((n,o)=>{let i=a("i",{class:"dot"});i.style.background=
Te(o);let r=()=>S({method:String(o),gone:String(this.removed)}),l=String(o===this.which);return a("button",{type:"button",class:"key","aria-pressed":l,onclick:r},
i,n.method)});return a("p",{class:"legend",role:"group","aria-label":"method"},e,w("method"))}lossAt(t){let{points:e}=this,n=e.findIndex(r=>r.gone>=t);if(n<0)return e[e.
length-1].lost;if(n===0||e[n].gone===t)return e[n].lost;let[o,i]=[e[n-1],e[n]];return o.lost+(t-o.gone)/(i.gone-o.gone)*(i.lost-o.lost)}draw(){let{left:t,right:e,
top:n,bottom:o}=Fe,i=Math.min(this.frame.clientWidth||560,720),r=z(this.canvas,i,kt),l=this.curve.curves.flatMap(({points:p})=>p.map(({lost:f})=>Math.min(f,No))),
[c,h]=[Math.min(0,...l),Math.max(.01,this.curve.limit,...l)],d=p=>t+p/this.total*(i-t-e),m=p=>kt-o-(p-c)/(h-c)*(kt-n-o);this.drawAxes(r,i,d,m,c,h),r.save(),r.beginPath(),
r.rect(t,n-4,i-t,kt-n-o+8),r.clip(),this.curve.curves.forEach((p,f)=>{let x=Zs(p.points);r.strokeStyle=r.fillStyle=Te(f),r.lineWidth=f===this.which?2.5:1.2,r.beginPath();
for(let v of x)r.lineTo(d(v.gone),m(v.lost));r.stroke();for(let v of x)r.beginPath(),r.arc(d(v.gone),m(v.lost),3,0,2*Math.PI),r.fill()}),r.restore(),r.strokeStyle=
M("--mark"),r.lineWidth=1.5,De(r,d(this.removed),n,d(this.removed),kt-o),this.describe(this.removed)}drawAxes(t,e,n,o,i,r){let{left:l,right:c,bottom:h}=Fe,d=o(this.
curve.limit);t.font=`11px ${D}`,t.fillStyle=M("--dim"),t.strokeStyle=M("--line"),t.lineWidth=1,t.textBaseline="middle";for(let m=0;m<=4;m+=1){let p=i+(r-i)*m/4;
t.textAlign="right",(Math.abs(o(p)-d)>12||m===0)&&t.fillText(`${Math.round(100*p)} %`,l-8,o(p)),De(t,l,o(p),e-c,o(p));let f=Math.round(this.total*(4-m)/4);t.textAlign=
m===0?"left":m===4?"right":"center",t.fillText(String(f),n(this.total-f),kt-h+14)}t.textAlign="center",t.fillStyle=M("--ink"),t.font=`600 12px ${D}`,t.fillText(
"heads kept",(l+e-c)/2,kt-8),et(t,"quality lost",8,(Fe.top+kt-h)/2),t.textAlign="right",t.fillText(`${Number((100*this.curve.limit).toPrecision(3))} %`,l-8,d),t.
setLineDash([4,4]),t.strokeStyle=M("--dim"),De(t,l,d,e-c,d),t.setLineDash([])}describe(t){let e=this.points.find(d=>d.gone===t),n=e?.heads??this.line.order.slice(
0,t),i=`: ${e?"":"about "}${Lt(this.lossAt(t))} of quality lost.`,r=`${tt(t,"head")} removed, ${this.total-t} of ${this.total} heads kept`,l=u.sites.map(d=>{let m=n.
filter(f=>Ht(f)===d.label),p=a("td",{class:"few"},`${d.heads-m.length} of ${d.heads}`);return a("tr",{},a("th",{scope:"row"},d.label),p,a("td",{class:"names"},Ho(
m)))}),c=["layer","heads kept","removed heads"].map(d=>a("th",{scope:"col"},d)),h=a("table",{class:"gonetable"},a("thead",{},a("tr",{},c)),a("tbody",{},l));this.
list.replaceChildren(a("p",{},a("b",{},r),i),...Bo(e),a("div",{class:"scroll"},h)),this.costs?.show(e)}},Zs=s=>[...s].sort((t,e)=>t.gone-e.gone);function Ho(s){
return s.map((t,e)=>{let n=j.get(t);return[e?" ":"",n===void 0?t:a("a",{href:E(n)},t)]})}function Bo(s){let t=[];if(s?.parameters){let e=u.model.parameters,n=Lt(
1-s.parameters/e);t.push(a("p",{},`${Ft(e)} parameters → ${Ft(s.parameters)} (${n} less)`))}if(s?.speed){let{ratio:e,low:n,high:o,batch:i,tokens:r,rounds:l,verdict:c}=s.
speed,h=c==="faster"||c==="slower"?`${L(e)} times as fast`:c,m=`${`${n.toFixed(2)} to ${o.toFixed(2)}`}, ${l} interleaved rounds, ${i} × ${r} tokens`;t.push(a(
"p",{class:"dim"},`The model on this machine: ${h} (${m}).`))}return t}function De(s,t,e,n,o){s.beginPath(),s.moveTo(t,e),s.lineTo(n,o),s.stroke()}var Fo=10,sn=40,Do=18,zo=760;function nn(s){let t=u.pairs,e=g=>t.measures.find(R=>R.name===g),n=e(s.measure)??e(t.by)??t.measures[0],o=[...new Set(t.heads.map(Ht))],
i=o.find(g=>g===s.scope),r=s.order!=="layer",l=(r?t.order:t.heads.map((g,R)=>R)).filter(g=>i===void 0||Ht(t.heads[g])===i),c=new Ve(t,n,l,s.pick),h=a("ol",{class:"\
toppairs"}),d=[["cluster","similar heads together"],["layer","by layer"]],m=[["all","all layers"],...o.map(g=>[g,g])],p=a("div",{class:"controls"},Y("Measure",t.
measures.map(g=>[g.name,gt(g)]),n.name,g=>S({measure:g}),w(gt(n),pe(n))),Y("Order",d,r?"cluster":"layer",g=>S({order:g==="layer"?g:void 0})),Y("Heads",m,i??"all",
g=>S({scope:g==="all"?void 0:g}))),f=a("section",{class:"groups"},U("Most similar pairs"),h),x=a("section",{class:"pairside"},c.box,c.legend(),c.note),v=a("div",
{class:"two"},x,a("div",{},f,Vo(t)));return{element:a("div",{},a("p",{class:"lead"},je(n)),p,v),start:async()=>{let g=await me(n);c.show(g);let R=Rs(n,g,l,Fo);h.
replaceChildren(...R.map(W=>Uo(t,n,W)))},resize:()=>c.draw()}}function Uo(s,t,[e,n,o]){let[i,r]=[s.heads[e],s.heads[n]],l=`${gt(t)} ${b(o)}`;return a("li",{},a(
"a",{href:on(i,r)},`${i} and ${r}`),a("span",{class:"value"},l))}var on=(s,t)=>B({view:void 0,pick:void 0,...Bt(j.get(s)??0),second:t});function Vo({groups:s,notes:t}){
let e=i=>i.map((r,l)=>[l?" ":"",a("a",{href:E(j.get(r)??0)},r)]),n=s.length?a("ul",{},s.map(i=>a("li",{},e(i)))):a("p",{class:"dim"},"No two heads are similar e\
nough to form a group."),o=U(`Groups of similar heads (${s.length})`,"group");return a("section",{class:"groups"},o,n,t.map(i=>a("p",{class:"dim"},i)))}var Ve=class{constructor({
heads:t},e,n,o){this.names=n.map(r=>t[r]),this.measure=e,this.order=n,this.picked=o===void 0?-1:this.names.indexOf(o),this.side=sn,this.gutter=40,this.values=null;
let i="Similarity of every two heads; the lists beside it name the most similar.";this.canvas=a("canvas",{class:"pairs",role:"img","aria-label":i}),this.box=a("\
div",{class:"pairbox"},this.canvas),this.note=a("p",{class:"hover"},"Point at a cell for its two heads; click to see them side by side."),this.canvas.addEventListener(
"pointermove",r=>{let l=this.under(r);this.canvas.style.cursor=l?"pointer":"default",l&&this.describe(...l)}),this.canvas.addEventListener("click",r=>{let l=this.
under(r);if(!l)return;let[c,h]=l.map(d=>this.names[d]);location.hash=c===h?E(j.get(c)??0):on(c,h)})}show(t){this.values=(e,n)=>t(this.order[e],this.order[n]),this.
draw(),this.picked>=0&&this.describe(this.picked,this.picked)}under(t){let[e,n]=it(t,this.canvas),[o,i]=[Math.floor((e-this.gutter)/this.side),Math.floor((n-this.
gutter)/this.side)],r=this.order.length;return i>=0&&o>=0&&i<r&&o<r?[i,o]:null}describe(t,e){let{values:n,names:o,measure:i}=this;if(!n)return;if(t!==e){this.note.
textContent=`${o[t]} and ${o[e]}: ${gt(i)} ${b(n(t,e))}`;return}let r=Yt(i)?1:-1,l=o.map((h,d)=>d).filter(h=>h!==t&&!Number.isNaN(n(t,h)));l.sort((h,d)=>r*(n(t,
h)-n(t,d)));let c=l.slice(0,3).map(h=>`${o[h]} ${b(n(t,h))}`);this.note.textContent=`Most similar to ${o[t]}: ${c.join(", ")}`}color(t){return Number.isNaN(t)?M(
"--line"):this.measure.low<0?at("signed",(t+1)/2):at("measure",Yt(this.measure)?1-t:t)}legend(){let{low:t}=this.measure,e=qt(l=>this.color(t+l*(1-t))),n=l=>a("s\
pan",{class:"dim"},l),o=t<0?["−1, opposite","1, the same"]:["0, unrelated","1, the same"],[i,r]=Yt(this.measure)?["0, the same","1, nothing in common"]:o;return a(
"p",{class:"legend"},n(i),e,n(r))}draw(){let{values:t,names:e}=this;if(!t)return;let n=e.length,o=z(this.canvas,10,10);o.font=`10px ${D}`,this.gutter=Do+8+Math.
ceil(Math.max(32,...e.map(d=>o.measureText(d).width)));let i=Math.min(this.box.clientWidth||600,zo);this.side=Math.max(1,Math.min(sn,(i-this.gutter)/n));let{side:r,
gutter:l}=this;z(this.canvas,l+r*n,l+r*n);let c=r>12?r-1:r+.5;for(let d=0;d<n;d+=1)for(let m=0;m<n;m+=1)o.fillStyle=this.color(d===m?NaN:t(d,m)),o.fillRect(l+m*
r,l+d*r,c,c);o.font=`600 12px ${D}`,o.fillStyle=M("--ink"),o.textBaseline="middle",o.textAlign="center",o.fillText("head",l+r*n/2,7),et(o,"head",7,l+r*n/2),o.font=
`10px ${D}`;let h=Math.max(1,Math.ceil(13/r));for(let d=0;d<n;d+=h)o.fillStyle=M(d===this.picked?"--ink":"--dim"),o.textAlign="right",o.fillText(e[d],l-4,l+(d+.5)*
r),o.textAlign="left",et(o,e[d],l+(d+.5)*r,l-4);this.picked<0||(o.strokeStyle=M("--mark"),o.lineWidth=1.5,o.strokeRect(l,l+this.picked*r,r*n,r))}};var rn={holds:"✓ holds",fails:"✗ fails","holds only if":"~ conditional"},an=s=>Object.hasOwn(rn,s)?rn[s]:s;function ln(){let{about:s,statements:t}=u.theory,
e=["#","statement","verdict","as computed","as stated"].map(c=>{let h=c==="#"?null:[" ",w(c)];return a("th",{scope:"col"},c,h)}),n=a("tbody",{},t.map(Go)),o=a("\
table",{class:"theory"},a("thead",{},a("tr",{},e)),n),i=`Statements about multi-head attention from papers and textbooks. Both sides were computed on this model\
: ${Ko(t)}. Click a statement for its formula and the result of each layer.`,r={class:"scroll wide",tabindex:"0",role:"region","aria-label":"Statements and verd\
icts"},l=[a("p",{class:"lead"},i),a("p",{class:"dim"},s)];return{element:a("div",{},l,a("div",r,o))}}function Ko(s){let t=new Map;for(let{verdict:e}of s)t.set(e,
(t.get(e)??0)+1);return[...t].map(([e,n])=>e==="holds only if"?`${n} ${n===1?"holds":"hold"} under a condition`:e==="holds"||e==="fails"?`${n} ${n===1?e:e.slice(
0,-1)}`:`${n} ${n===1?"has":"have"} ${e}`).join(", ")}function Go(s){let{id:t,title:e,formula:n,verdict:o,tally:i}=s,r=Object.entries(s.layers),[l,c]=r.find(([,
f])=>f.verdict===o)??r[0],h=s.holds_when.replace(/\.$/,""),d=r.map(([f,x])=>a("tr",{},a("th",{scope:"row"},f),a("td",{},an(x.verdict)),a("td",{},x.lhs),a("td",{},
x.rhs))),m=a("details",{},a("summary",{},e),a("code",{},n),a("p",{},c.because));h&&m.append(a("p",{class:"dim"},`True when ${h}.`)),m.append(a("table",{class:"l\
ayers"},a("tbody",{},d)));let p=i.replace(/^(holds|fails|conditional)/,f=>an(f==="conditional"?"holds only if":f));return a("tr",{class:`verdict ${o.replaceAll(
" ","-")}`,"data-key":t},a("th",{scope:"row"},t),a("td",{class:"statement"},m),a("td",{class:"result"},p),a("td",{title:l},c.lhs),a("td",{},c.rhs))}var cn=1024;function hn(s){let t=new Ke(s,ge(s)),e=l=>S({hide:l?"1":void 0}),n=Wt("hide delimiters",t.hide,e,w("hide delimiters")),o=a("div",{class:"controls"},
ke(t.text),zs(t.looks),n),r=a("div",{class:"tokensview"},a("p",{class:"lead"},"Click a token of the text. Each box is a head and shows the token with the larges\
t weight: the darker the box, the larger the weight. Click a box to open its head."),o);return r.append(t.tokens.box,t.spoken,Yo(),t.table),{element:r,start:()=>t.
choose(t.token),stop:()=>t.stop()}}var Ke=class{constructor(t,e){this.text=e,this.looks=t.dir!==jt,this.hide=t.hide==="1",this.live=!0,this.turn=0,this.sequence=
u.texts[e].sequences[0];let n=this.sequence.special.findIndex((i,r)=>!i&&r>0);this.token=rt(t.row,this.sequence.shown.length)??Math.max(0,n);let o=i=>{Et({row:String(
i)}),this.choose(i)};this.tokens=new Nt(this.sequence,{hover:()=>{},pick:o,label:"Tokens of the text"}),this.spoken=a("p",{class:"said",role:"status"}),this.boxes=
[],this.table=u.heads.length>cn?Qo():this.makeTable()}makeTable(){let t=1+Math.max(...$.map(l=>l.number)),e=Array.from({length:t},(l,c)=>a("th",{scope:"col"},String(
c))),n=a("td",{class:"corner"},"layer ↓ head →"),o=u.sites.map((l,c)=>{let h=Array.from({length:t},()=>a("td"));for(let d=dt[c];d<dt[c]+l.heads;d+=1){let m=a(
"a",{href:E(d),"aria-label":u.heads[d]});this.boxes.push(m),h[$[d].number].append(m)}return a("tr",{},a("th",{scope:"row"},l.label),h)}),i=a("table",{class:"tie\
s"},a("thead",{},a("tr",{},n,e)),a("tbody",{},o));return a("div",{class:"scroll wide",tabindex:"0",role:"region","aria-label":"The token with the largest weight\
, for every head"},i)}stop(){this.live=!1}async choose(t){this.token=t,this.turn+=1;let{turn:e,looks:n}=this,o=`“${C(this.sequence.shown[t],40)}”, token ${t}\
.`,i=new Float32Array(this.sequence.shown.length),r=0;this.tokens.paint(null,t);for(let c=0;c<this.boxes.length;c+=1){let h=await At(this.text,c).catch(()=>null);
if(!this.live||e!==this.turn)return;let[d,m]=h?n?[h.rows,h.columns]:[h.columns,h.rows]:[null,null];if(!h||!m||d!==this.sequence)continue;if(h instanceof N&&!n){
this.spoken.textContent=`${o} On a text this long, open a head to see who looks at a token.`;return}n||await h.complete();let p=await wt(h.reweighted(!1,this.hide),
n,t).catch(()=>null);if(!p||!this.live||e!==this.turn)return;if(this.showBox(c,p,m),r+=1,m===this.sequence)for(let f=0;f<i.length;f+=1)i[f]+=p[f]}this.tokens.paint(
i.map(c=>c/Math.max(1,r)),t);let l=n?"where it looks":"who looks at it";this.spoken.textContent=`${o} Shaded: ${l}, the mean over all heads.`}showBox(t,e,n){let o=0;
for(let l=1;l<e.length;l+=1)e[l]>e[o]&&(o=l);let i=this.boxes[t],r=dn(e[o]);i.textContent=C(n.shown[o],7),i.href=B({view:void 0,...Bt(t),row:String(this.token)}),
i.title=`${u.heads[t]}: ${C(n.shown[o],60)} ${b(e[o])}`,i.setAttribute("aria-label",i.title),i.style.backgroundColor=un(r),i.classList.toggle("strong",r>55)}},dn=s=>Math.
round(78*s**k.weight_exponent),un=s=>`color-mix(in srgb, var(--shade) ${s}%, transparent)`;function Yo(){let s=[.01,.1,.25,.5,1].map(e=>{let n=a("span",{},String(
e));return n.style.backgroundColor=un(dn(e)),n});return a("p",{class:"shading"},a("span",{class:"steps"},s)," ","largest weight of the head, square-root scale ",
w("shading"))}var Qo=()=>a("p",{class:"dim"},`This view is for up to ${cn} heads; this model has ${u.heads.length}.`);var ye=[{key:"heads",title:"Heads",make:Xs,has:()=>!0},{key:"tokens",title:"Tokens",make:hn,has:()=>u.texts.length>0},{key:"similarity",title:"Similarity",make:nn,
has:()=>u.pairs!==null},{key:"pruning",title:"Pruning",make:tn,has:()=>u.curve!==null||u.cost!==null},{key:"theory",title:"Theory",make:ln,has:()=>u.theory!==null}],
yt=null,Ge=0;function Jo(s,t){let e=ye.find(n=>n.key===s.view&&n.has());return e||(t===null?ye[0]:null)}async function be(){let s=performance.now();Ge+=1;let t=Ge,
e=ne(),n=$e(e),o=Jo(e,n),i=!o&&n!==null?yt?.moveTo?.(e,n):null,r=o?.key??"head";i||(yt?.stop?.(),yt=o||n===null?(o??ye[0]).make(e):Ds(e,n),I("main").replaceChildren(
yt.element));for(let l of I("views").querySelectorAll("a"))l.dataset.view===(o?.key??"heads")?l.setAttribute("aria-current","page"):l.removeAttribute("aria-curr\
ent");document.body.dataset.view=r,await(i??yt?.start?.()),t===Ge&&(!o&&n!==null&&ct(he(n)),document.body.dataset.ready=`${r} ${location.hash}`,document.body.dataset.
took=(performance.now()-s).toFixed(1))}var Xo="This page is incomplete: the run was stopped before everything was measured.";function Zo(){let{notes:s,model:t,version:e,
made:n}=u,o=u.stopped?[Xo]:[];I("card").replaceChildren(...ti()),I("findings").replaceChildren(...o.map(h=>a("p",{class:"finding note"},h)),...ei());let i=()=>document.
documentElement.dataset.theme==="dark"?"light":"dark";I("tools").replaceChildren(a("button",{type:"button",id:"theme",onclick:()=>Ye(i())},"Light / dark"),a("bu\
tton",{type:"button",onclick:()=>window.print()},"Print"));let l=ye.filter(h=>h.has()).map(({key:h,title:d})=>a("a",{href:`#view=${h}`,"data-view":h},d));I("vie\
ws").replaceChildren(...l),I("foot").replaceChildren(...[...o,...s].map(h=>a("p",{class:"note"},h)),a("p",{},`multihead ${e}, ${n}. ${t.class}. On a head, arrow\
 keys move to other heads and layers, and Esc leads back to all heads. The URL saves this view.`))}function ti(){let{model:s,corpus:t,sites:e,heads:n}=u,o=e.reduce(
(m,p)=>m+p.kv,0),i=new Set(e.map(m=>m.heads)),r=[...i][0],l=i.size===1?`${tt(e.length,"layer")} × ${tt(r,"head")}`:`${n.length} heads in ${tt(e.length,"layer")}`,
c=tt(t.documents,"document"),h=t.tokens?`${t.tokens.toLocaleString("en")} tokens in ${c}`:c;return[[Ft(s.parameters),"parameters","parameters"],[l,"","head"],[String(
o),o===n.length?"kv heads, one each":"kv heads","kv heads"],[h,t.name?`of ${C(t.name,60)}`:"","token"]].map(([m,p,f])=>a("span",{},a("b",{},m),` ${p} `,w(f)))}var mn={
heads:"Show heads →",similarity:"Show similarity →",pruning:"Show pruning →",theory:"Show theory →"};function ei(){return u.findings.map(({text:s,link:t})=>{
let e=new URLSearchParams(t.slice(1)).get("view")??"",n=Object.hasOwn(mn,e)?mn[e]:"Show head →",o=a("span",{},si(s.replace(/(\d) %/g,"$1 %"))),i=a("a",{class:"\
arrow",href:t,onclick:()=>I("views").scrollIntoView()},n);return a("div",{class:"finding"},o,i)})}function si(s){return s.split(/([\w.]*L\d+H\d+)/).map(t=>{let e=j.
get(t);return e===void 0?t:a("a",{href:E(e)},t)})}function Ye(s){document.documentElement.dataset.theme=s,ws(),yt?.stop?.(),yt=null,u&&be()}function ni(s){if(Zt(
s,"input, select, textarea, .tokens, canvas.grid, [contenteditable]")||s.altKey||s.ctrlKey||s.metaKey||s.shiftKey)return;let t=$e(ne());if(document.body.dataset.
view!=="head"||t===null)return;s.key==="Escape"&&S(oe);let e=se[s.key];e&&(s.preventDefault(),history.replaceState(null,"",E(vt(t,e))),be())}async function oi(){
let s=window.matchMedia("(prefers-color-scheme: dark)");if(Ye(s.matches?"dark":"light"),s.addEventListener("change",()=>Ye(s.matches?"dark":"light")),typeof DecompressionStream>
"u"){I("main").append(a("p",{class:"lead"},"This browser is too old for this page. Use Chrome 111, Safari 16.4, Firefox 113 or a newer one."));return}await ns(),
Zo(),be(),window.addEventListener("hashchange",()=>location.hash!=="#main"&&be()),window.addEventListener("keydown",ni);let t=0;window.addEventListener("resize",
()=>{clearTimeout(t),t=window.setTimeout(()=>yt?.resize?.(),80)})}async function ii(s,t=0,{norm:e=!1,hide:n=!1}={}){let o=await Ot(t,j.get(s)??-1);if(!o||o instanceof
N)return null;let i=o.reweighted(e,n);return Array.from({length:o.queries},(r,l)=>Array.from(i.row(l)))}async function ri(s,t,e=0,{norm:n=!1,hide:o=!1,looks:i=!0}={}){
let l=await(i?At:Ot)(e,j.get(s)??-1);return l&&Array.from(await wt(l.reweighted(n,o),i,t))}Object.defineProperty(window,"multihead",{value:Object.freeze({weights:ii,
row:ri,get data(){return u}})});oi();})();
