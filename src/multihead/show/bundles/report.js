"use strict";(()=>{function P(s){let t=document.getElementById(s);if(!t)throw new Error(`the page has no element #${s}`);return t}function a(s,t={},...e){let n=document.createElement(
s);for(let[o,i]of Object.entries(t))i==null||i===!1||(typeof i=="function"?n.addEventListener(o.slice(2),i):n.setAttribute(o,i===!0?"":String(i)));return as(n,e),
n}function as(s,t){for(let e of t)Array.isArray(e)?as(s,e):e!=null&&s.append(e)}function _(s,t={},...e){let n=document.createElementNS("http://www.w3.org/2000/s\
vg",s);for(let[o,i]of Object.entries(t))n.setAttribute(o,String(i));return n.append(...e),n}function X(s,t,e,n,o){let i=a("select",{onchange:()=>n(i.value)});for(let[
r,l]of t){let c=a("option",{value:r},l);c.selected=r===e,i.append(c)}return a("div",{class:"choice"},a("label",{},a("span",{},s),i),o)}function Ut(s,t,e,n){let o=a(
"input",{type:"checkbox",onchange:()=>e(o.checked)});return o.checked=t,a("div",{class:"toggle"},a("label",{},o,a("span",{},s)),n)}function ot(s){P("live").textContent=
s}function ne(){return new Promise(s=>{"requestIdleCallback"in window?requestIdleCallback(s,{timeout:500}):setTimeout(s,100)})}function oe(s,t){let e=a("a",{href:URL.
createObjectURL(s),download:t});e.click(),setTimeout(()=>URL.revokeObjectURL(e.href),1e4)}function ct(s,t){let e=t.getBoundingClientRect();return[s.clientX-e.left,
s.clientY-e.top]}function ie(s,t){return s.target instanceof Element?s.target.closest(t):null}var ls=null,cs=Uint8Array;async function re(s){let t=cs.fromBase64?cs.fromBase64(s):Uint8Array.from(atob(s),n=>n.charCodeAt(0)),e=new Response(t).body;return new Uint8Array(
await new Response(e.pipeThrough(new DecompressionStream("deflate-raw"))).arrayBuffer())}async function hs(){let s=P("data"),t=JSON.parse(new TextDecoder().decode(
await re(s.textContent??"")));return s.remove(),t}function Tt(s){return ls??=(P("lines").textContent??"").split(`
`),re(ls[s])}var mt=s=>new Float32Array(s.buffer,s.byteOffset,s.byteLength/4),Ce=s=>new Uint32Array(s.buffer,s.byteOffset,s.byteLength/4),In=Float64Array.from({
length:32},(s,t)=>2**((t||1)-25));function ds(s){let t=s.length/2,e=new Float32Array(t);for(let n=0;n<t;n+=1){let o=s[n]<<8|s[t+n],i=o>>10&31,r=((i?1024:0)+(o&1023))*
In[i];e[n]=o&32768?-r:r}return e}var b;function us(s){b=s}var d,x=[],I=new Map,G=[],it=new Set;async function ps(){d=await hs(),us(d.charts),d.served&&(d.texts=Rn(d.texts)),I=new Map(d.heads.map((s,t)=>[s,t])),x=[],G=[],
d.sites.forEach((s,t)=>{G.push(x.length);for(let e=0;e<s.heads;e+=1)x.push({site:t,head:e,number:Pn(d.heads[x.length])})}),it=jn()}function Rn(s){let t=[];for(let e of s)
t[e.at??0]=e;return t}var Pn=s=>Number(/H(\d+)$/.exec(s)?.[1]??0),Vt=s=>s.replace(/H\d+$/,"");function jn(){let s=d.curve,t=s?.curves[0];if(!s||!t)return new Set(
[]);let e=t.points.find(n=>n.gone===s.prunable);return new Set(e?.heads??t.order.slice(0,s.prunable))}function A(s){return s&&d.table&&Object.hasOwn(d.table,s)?
d.table[s]:null}var At=(s,t)=>A(s)?.values[t]??null;function E(s,t){let e=At(s,t);return typeof e=="number"?e:null}function H(s,t){let e=At(s,t);return typeof e==
"string"?e:""}var ae=s=>d.heads.map((t,e)=>E(s,e)),ms=()=>Object.keys(d.table??{}).filter(s=>A(s)?.values.some(t=>typeof t=="number"));function fs(s,t){let e=A(
s)?.why??{};return Object.keys(e).find(n=>e[n].includes(d.heads[t]))??""}var N=s=>H("kind",s),ws=s=>[N(s),H("kind_detail",s)].filter(Boolean).join(" "),ft=s=>E(
d.importance,s);function le(s){let t=d.importance?E(`${d.importance}_error`,s):null;return t===null?null:1.96*t}function Et(s,[t,e]){let n=x[s],o=d.sites.length,
i=(n.site+t+o)%o,r=d.sites[i].heads,l=t?Math.min(n.head,r-1):(n.head+e+r)%r;return G[i]+l}var ce={ArrowLeft:[0,-1],ArrowRight:[0,1],ArrowUp:[-1,0],ArrowDown:[1,
0]};var he=()=>Object.fromEntries(new URLSearchParams(location.hash.slice(1)));function Z(s,t){let e=Number(s);return s!==void 0&&s!==""&&Number.isInteger(e)&&e>=0&&
e<t?e:null}function F(s){return`#${Object.entries({...he(),...s}).filter(([,e])=>e!==void 0&&e!=="").map(([e,n])=>`${e}=${encodeURIComponent(String(n))}`).join(
"&")}`}function S(s){location.hash=F(s)}function wt(s){history.replaceState(null,"",F(s))}function Ot(s){let{site:t,number:e}=x[s],{stack:n,layer:o}=d.sites[t];
return{stack:n||void 0,layer:String(o),head:String(e)}}var L=s=>F({view:void 0,kind:void 0,share:void 0,pick:void 0,second:void 0,...Ot(s)}),de={view:"heads",layer:void 0,
head:void 0,second:void 0,row:void 0};function Kt(s){if(s.layer===void 0||s.head===void 0)return null;let t=x.findIndex(({site:e,number:n})=>{let{layer:o,stack:i}=d.
sites[e];return String(o)===s.layer&&(i||"")===(s.stack||"")&&String(n)===s.head});return t<0?null:t}var gs=s=>s==null||Number.isNaN(s);function C(s,t=b.format.digits){let{missing:e,plain:n}=b.format;if(gs(s))return e;let o=Math.abs(s);return Number.isInteger(s)&&
o<n[1]?String(s):o>=n[1]||o<n[0]?s.toExponential(1).replace("e+","e").replace(".0e","e"):String(Number(s.toPrecision(t)))}function k(s){let{missing:t,fraction_digits:e}=b.
format;return gs(s)?t:s.toFixed(e)}var gt=(s,t=2)=>`${C(100*s,t)} %`;function Gt(s){let t=Math.max(0,Math.min(3,Math.floor(Math.log10(Math.max(1,s))/3)));return`${Number(
(s/1e3**t).toPrecision(3))}${[""," k"," M"," G"][t]}`}function M(s,t=24){let e=Array.from(s);return e.length<=t?s:`${e.slice(0,t-1).join("")}…`}var z=s=>s?`${s[0].
toUpperCase()}${s.slice(1)}${/[.!?]$/.test(s)?"":"."}`:"",Y=(s,t)=>`${s} ${t}${s===1?"":"s"}`;var D="system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif",Rt=()=>window.devicePixelRatio||1;function Yt(s){let t=s.getContext("2d");if(!t)throw new Error(
"this browser draws no canvas");return t}function B(s,t,e){let n=Rt(),[o,i]=[Math.max(1,Math.round(t*n)),Math.max(1,Math.round(e*n))],r=Yt(s);return s.width===o&&
s.height===i&&s.style.width&&"reset"in r?r.reset():(s.width=o,s.height=i,s.style.width=`${t}px`,s.style.height=`${e}px`),r.setTransform(n,0,0,n,0,0),r}function Pt(s,t=160){
let e=a("canvas",{class:"bar","aria-hidden":"true"}),n=B(e,t,10);for(let o=0;o<t;o+=1)n.fillStyle=s(o/(t-1)),n.fillRect(o,0,1,10);return e}function rt(s,t,e,n){
s.save(),s.translate(e,n),s.rotate(-Math.PI/2),s.fillText(t,0,0),s.restore()}var ks=s=>Object.hasOwn(d.kind_texts,s)?d.kind_texts[s]:null,Q=s=>ks(s)?.label??s,ue=s=>ks(s)?.sentence??"";var Ne=20,bs=.4,pe=2*Math.PI;function ys(s,{color:t,size:e=.6,hollow:n},o,i,r){let[l,c]=b.size,h=Math.max(1.2,r/2*(l+(c-l)*e));s.beginPath(),s.arc(o+r/2,i+r/2,h,
0,pe),s.lineWidth=Math.max(1,Math.min(2.5,r/12)),s.strokeStyle=s.fillStyle=t,n?s.stroke():s.fill()}function _n(s,{color:t},e,n,o){let i=xs(o);s.fillStyle=t,s.fillRect(
e+i,n+i,o-2*i,o-2*i)}function Wn(s,t,e,n,o){t.parts?o<Ne?Fn(s,t,e,n,o):Hn(s,t,e,n,o):ys(s,{...t,size:.2},e,n,o)}function Hn(s,{parts:t=[],leading:e=[],size:n=1,
hollow:o},i,r,l){let{size:[c,h],hole:u,centre:p}=b.ring,m=l/2*(c+(h-c)*n),[f,v]=[i+l/2,r+l/2],$=(W,nt,K)=>{s.beginPath(),s.arc(f,v,W,pe*(nt-.25),pe*(K-.25))},q=m*
(1-u),O=.6/(pe*(m-q/2)),g=0;s.lineWidth=q,t.forEach((W,nt)=>{let K=g+W,lt=W>3*O&&W<1?O:0;s.strokeStyle=b.shares[nt].colour,$(m-q/2,g+lt,K-lt),W>0&&s.stroke(),g=
K}),s.lineWidth=Math.max(1.2,m/9);let R=m*p-(o?s.lineWidth/2:0);e.forEach(({colour:W},nt)=>{s.strokeStyle=s.fillStyle=W;let[K,lt]=[.5+nt/e.length,.5+(nt+1)/e.length];
$(R,K,lt),o?s.stroke():s.fill()})}function Fn(s,{parts:t=[],leading:e=[],hollow:n},o,i,r){let l=xs(r),c=r-2*l,h=Math.max(1,r/8),u=b.shares.map(({name:f})=>f),p=e.
reduce((f,{name:v})=>f+t[u.indexOf(v)],0),m=s.globalAlpha;s.globalAlpha=m*(bs+(1-bs)*Math.sqrt(Math.max(0,Math.min(1,p)))),s.lineWidth=h,e.forEach(({colour:f},v)=>{
let $=c/e.length,[q,O]=[o+l+v*$,i+l];s.strokeStyle=s.fillStyle=f,n?s.strokeRect(q+h/2,O+h/2,$-h,c-h):s.fillRect(q,O,$,c)}),s.globalAlpha=m}var xs=s=>s>12?1.5:.5,
vs={dot:ys,square:_n,shares:Wn};var Lt=s=>s.split(",")[0];function tt(s){let t=Lt(s).split(" + ");return b.shares.filter(({name:e})=>t.includes(e))}var Ct=256;function qt(s){let{kinds:t,no_value:e}=b;return Object.hasOwn(t,s)?t[s]:tt(s)[0]?.colour??e}function fe(s){let[t,e]=tt(s);return e?`linear-gradient(9\
0deg, ${t.colour} 50%, ${e.colour} 50%)`:qt(s)}var Re=s=>b.lines[s%b.lines.length],zn=s=>[1,3,5].map(t=>parseInt(s.slice(t,t+2),16));function Dn(s){let t=s.map(
zn),e=new Uint8Array(3*Ct);for(let n=0;n<Ct;n+=1){let o=n/(Ct-1)*(t.length-1),i=Math.min(t.length-2,Math.floor(o));for(let r=0;r<3;r+=1)e[3*n+r]=Math.round(t[i][r]+
(o-i)*(t[i+1][r]-t[i][r]))}return e}var $s=new Map;function Ss(s){let t=$s.get(s);return t||(t=Dn(b.ramps[s]),$s.set(s,t)),t}var Pe=()=>document.documentElement.
dataset.theme==="dark"?"weight-dark":"weight";function ht(s,t){let e=Ss(s),n=3*Math.max(0,Math.min(Ct-1,Math.round(t*(Ct-1))));return`rgb(${e[n]} ${e[n+1]} ${e[n+2]})`}var Ie=new Map,me=null;function T(s){let t=Ie.
get(s);return t===void 0&&(t=getComputedStyle(document.documentElement).getPropertyValue(s).trim(),Ie.set(s,t)),t}function Ms(){if(!me){let s=Ss(Pe()),t=new Uint8Array(
4*Ct).fill(255);for(let e=0;e<Ct;e+=1)t.set(s.subarray(3*e,3*e+3),4*e);me=new Uint32Array(t.buffer)}return me}function Ts(){me=null,Ie.clear()}function dt(s){if(!H("leading",s))return null;let t=b.shares.map(({name:e})=>E(e,s));return t.includes(null)?null:t}var Qt=()=>d.heads.some((s,t)=>dt(t)!==null),
et=s=>tt(H("leading",s));function As(s){let t=et(s).map(({one:e})=>e);return t.length?`This head ${t.join("; it also ")}.`:""}var kt=62,jt=40,Es=46,Bn=5;function Un(s,t){if(s==="shares"||s==="kind"){let r=d.heads.map((h,u)=>ft(u)),[,l]=Os(r),c=s==="shares"?1:.6;return h=>({shape:s==="s\
hares"?"shares":"dot",color:qt(N(h)),size:l>0?Math.sqrt(Math.max(r[h]??0,0)/l):c,hollow:it.has(d.heads[h]),faded:!t(h),parts:dt(h)??void 0,leading:et(h)})}let e=ae(
s),{ramp:n,low:o,high:i}=je(e);return r=>{let l=e[r];return{shape:"square",color:l===null?T("--line"):ht(n,i>o?(l-o)/(i-o):.5)}}}function je(s){let[t,e]=Os(s),n=Math.
max(-t,e);return t<0&&e>0?{ramp:"signed",low:-n,high:n}:{ramp:"measure",low:t,high:e}}function Os(s){let[t,e]=[1/0,-1/0];for(let n of s)n!==null&&n<t&&(t=n),n!==
null&&n>e&&(e=n);return[t,e]}var we=class{constructor(t,e){this.by=t,this.chosen=e,this.columns=1+Math.max(...x.map(n=>n.number)),this.headAt=new Map(x.map(({site:n,
number:o},i)=>[`${n} ${o}`,i])),this.side=Es,this.picked=0,this.hovered=null,this.canvas=a("canvas",{tabindex:"0",role:"application",class:"grid","aria-label":"\
Grid of heads, layers down, heads across. Arrow keys move, Enter opens the head."}),this.note=a("p",{class:"hover","aria-hidden":"true"}),this.box=a("div",{class:"\
gridbox"},this.canvas),this.canvas.addEventListener("pointermove",n=>this.hover(this.under(n))),this.canvas.addEventListener("pointerleave",()=>this.hover(null)),
this.canvas.addEventListener("click",n=>{let o=this.under(n);o!==null&&(location.hash=L(o))}),this.canvas.addEventListener("keydown",n=>this.onKey(n)),this.canvas.
addEventListener("focus",()=>this.draw()),this.canvas.addEventListener("blur",()=>this.draw()),this.describe(null)}under(t){let[e,n]=ct(t,this.canvas),[o,i]=[Math.
floor((n-jt)/this.side),Math.floor((e-kt)/this.side)];return this.headAt.get(`${o} ${i}`)??null}hover(t){t!==this.hovered&&(this.hovered=t,this.canvas.style.cursor=
t===null?"default":"pointer",this.draw(),this.describe(t))}describe(t){let e="Point at a head for its numbers; click to open it.";this.note.textContent=t===null?
e:ge(t,this.by)}onKey(t){t.key==="Enter"&&(location.hash=L(this.picked));let e=ce[t.key];e&&(t.preventDefault(),t.stopPropagation(),this.picked=Et(this.picked,e),
this.draw(),this.describe(this.picked),ot(ge(this.picked,this.by)))}draw(){let t=d.sites.length,e=((this.box.clientWidth||600)-kt)/this.columns;this.side=Math.max(
Bn,Math.min(Es,e>12?Math.floor(e):e)),this.box.parentElement&&(this.box.parentElement.dataset.mark=this.side<Ne?"tile":"ring");let[n,o]=[this.side*this.columns,
this.side*t],i=B(this.canvas,kt+n,jt+o+2);this.drawAxes(i,n,o);let r=Un(this.by,this.chosen),l=document.activeElement===this.canvas?this.picked:null;x.forEach(({
site:c,number:h},u)=>{let[p,m]=[kt+h*this.side,jt+c*this.side],f=r(u);i.globalAlpha=f.faded?.16:1,vs[f.shape](i,f,p,m,this.side),i.globalAlpha=1,!(u!==this.hovered&&
u!==l)&&(i.strokeStyle=T("--ink"),i.lineWidth=1.5,i.strokeRect(p+.75,m+.75,this.side-1.5,this.side-1.5))})}drawAxes(t,e,n){t.font=`600 12px ${D}`,t.fillStyle=T(
"--ink"),t.textBaseline="middle",t.textAlign="center",t.fillText("head",kt+Math.min(e,this.box.clientWidth-kt)/2,8),rt(t,"layer",8,jt+n/2),t.font=`11px ${D}`,t.
fillStyle=T("--dim");let o=Math.max(1,Math.ceil(18/this.side));for(let r=0;r<this.columns;r+=o)t.fillText(String(r),kt+(r+.5)*this.side,jt-11);t.textAlign="righ\
t";let i=d.sites.length>40||this.side<14;d.sites.forEach(({label:r,layer:l},c)=>{if(c%o)return;let h=i?String(l):r.replace(/^(enc|dec)oder\./,"$1.");t.fillText(
h,kt-8,jt+(c+.5)*this.side)})}};function ge(s,t){let e=[d.heads[s]];if(A("kind")){let r=E("kind_score",s),l=Lt(N(s))===N(s);e.push(`${J(s)}${r===null||!l?"":` ${k(
r)}`}`)}let n=dt(s);n&&e.push(b.shares.map(({name:r},l)=>`${r} ${k(n[l])}`).join(", ")),d.importance&&e.push(`importance ${C(ft(s),2)}`);let o=H("most_similar",
s);o&&e.push(`most similar ${o} ${k(E("most_similar_cka",s))}`);let i=t==="kind"||t==="shares"||t===d.importance?null:A(t);return t&&i&&e.push(`${t} ${C(E(t,s))}`),
it.has(d.heads[s])&&e.push("can be pruned"),e.join(" · ")}var J=s=>[Q(N(s)),H("kind_detail",s)].filter(Boolean).join(" "),Ls=s=>ue(N(s))||As(s);var V={head:"A head looks at every token of a text and mixes some of them into each token. A layer has several heads, each with its own weights. L3H7 is head 7 \
of layer 3; both are counted from 0.",layer:"A step of the model. Its heads work side by side; the next layer reads what they wrote.",token:"A word or a piece o\
f a word: the unit that the model reads.",parameters:"The numbers that training has set. M is a million.","kv heads":"Heads that have keys and values of their o\
wn. Where several heads share them (grouped-query attention), there are fewer kv heads than heads.","attention map":"One square per pair of tokens. Each row is \
a query, the token that looks; each column is a key, a token that it looks at. The darker the square (on a dark page, the brighter), the larger its weight.",switch:"\
Multiplies what a head writes by a factor: 1 leaves it as it is, 0 switches the head off, as if it were pruned. Later heads read what is left, so their maps may\
 change, too.",query:"The token that looks: a row of the map. Its weights sum to 1.",key:"A token that is looked at: a column of the map.",shading:"Each box is \
coloured by the largest weight of its head from this token, on a square-root scale like the maps. The text is shaded by the mean over all heads, relative to its\
 largest value.",weight:"How much of a key flows into a query, from 0 to 1. The weights of one query sum to 1. The colour shows the square root of the weight, s\
o small weights stay visible: 0.25 has the colour in the middle of the bar.",kind:"What a head mostly does, such as looking at the previous token. A head has a \
kind only if its score is significantly above a threshold and above chance, measured over several documents; otherwise it is named by its leading share and the \
share's value.",shares:"A head that looks everywhere alike is all spread. Whatever makes it choose, the five shares say how much of it: spread + rest + position\
 + word + match = 1, as parts of log n for texts of n tokens. Spread and rest lead only where they dominate; two shares lead where their intervals overlap or th\
ey differ by less than 15 %.","example rows":"Tokens with large weights in this text, and the three keys that each looks at most. Click a token to see its row.",
score:"How clearly a head is of its kind, from 0 to 1: for most kinds, the share of its weight that goes where the kind says. The tick is the threshold, the lin\
e the 95 % interval, the open dot the score by chance.",evidence:"Why the head has its kind, or none: the score, its 95 % interval, the threshold and the score \
by chance.",importance:"How much worse the model gets without this head. The value after ± is half of the 95 % interval; a value below its ± may be zero.","mo\
st similar":"The head whose output is closest to that of this one, by CKA: 0 is unrelated, 1 is the same.","most similar pairs":"The two heads of each line are \
closest by the measure that is chosen, among the heads that are shown. Click a pair to see both maps side by side.",CKA:"Centered kernel alignment: how similar \
the outputs of two heads are, up to a rotation. 0 is unrelated, 1 is the same.","norm-weighted":"Each weight is multiplied by the length of the vector that its \
key adds to the output, and rows sum to 1 again (Kobayashi et al. 2020). A large weight on a token that adds nothing disappears.","hide delimiters":"Leaves out \
special tokens such as [CLS] and [SEP]. The weights of the others sum to 1 again.",direction:"Where a token looks is its row of the map. Who looks at it is its \
column.",distance:"How far away the keys are that a head looks at, in tokens.",entropy:"How widely a head spreads its weight: 0 if it looks at one token only, l\
arger if it looks at many.",max_weight:"The largest weight that a query gives to one key; near 1, the head looks at one token at a time.",first:"The share of th\
e weight on the first token.",special:"The share of the weight on special tokens such as [CLS], [SEP] or the end of a text.",previous:"The share of the weight o\
n the token one position back.",next:"The share of the weight on the token one position ahead.",self:"The share of the weight on the token's own position.",same_token:"\
The share of the weight on other copies of the same token.",induction:"The share of the weight on tokens that followed an earlier copy of the same token.",output_norm:"\
The length of the vector that the head writes.",measures:"Values measured over the corpus. The “?” beside each says what it means.",pairs:"The tokens that t\
he head ties together most strongly: from the query to the key.","by distance":"How much weight goes to keys at each distance: back on the left, ahead on the ri\
ght.",group:"Heads that are more similar to each other, on average, than a threshold. One of them may replace the others.",pruning:"Removing heads from the mode\
l. The matrices get smaller, so the model needs less memory and time. Quality is measured again with the heads removed.","quality lost":"How much worse the mode\
l is without the removed heads, as a share: the growth of its perplexity, or the change of its outputs where it has no vocabulary.","can be pruned":"These heads\
 can be removed together, and the model loses less quality than the limit (the dashed line).",method:"The rule that decides which heads are removed first.","hea\
ds kept":"The number of heads that stay in the model, from all of them on the left to none on the right.","attention costs":"Parameters, arithmetic and memory o\
f the attention layers alone, for a text as long as stated: counted from the sizes, not measured.","cost: parameters":"The weights of the attention layers.","co\
st: FLOPs, projections":"Multiplications and additions that make queries, keys and values of every token, and mix the heads' outputs.","cost: FLOPs, attention":"\
Multiplications and additions that compare every query with every key and mix the values.","cost: FLOPs, visible pairs only":"The same for pairs that the mask a\
llows: about half of them in a causal model.","cost: scores, if written out":"Memory for the attention maps of all heads if they were stored. Fast kernels never\
 store them.","cost: KV cache":"Memory for the keys and values of all earlier tokens while a text is generated.","cost: decoding, FLOPs per token":"Multiplicati\
ons and additions for one new token while a text is generated.","cost: decoding, bytes per token":"Memory that is read for one new token: weights and the KV cac\
he.","cost: FLOPs per byte, all tokens":"Arithmetic per byte of memory traffic when a text is read at once. Above about 100, arithmetic limits the speed; below,\
 memory does.","cost: FLOPs per byte, decoding":"The same for one new token while a text is generated.","cost: crossover, tokens":"The length of text above whic\
h comparing tokens costs more than the projections.","cost: crossover, visible pairs only":"The same, counting only pairs that the mask allows.","as computed":"\
The left side of the statement, computed on this model.","as stated":"The right side: the value that the statement predicts.",statement:"A claim about multi-hea\
d attention from a paper or a textbook that can be true or false.",verdict:"Holds, fails, or holds only under a condition: both sides were computed on this mode\
l."};var bt=a("div",{id:"definition",role:"note",hidden:!0}),yt=null;function Jt(){yt?.setAttribute("aria-expanded","false"),yt=null,bt.hidden=!0}function Vn(s,t,e){
Jt(),yt=s,s.setAttribute("aria-expanded","true"),bt.replaceChildren(a("b",{},t),a("p",{},e)),document.body.append(bt),bt.hidden=!1;let n=s.getBoundingClientRect(),
{width:o,height:i}=bt.getBoundingClientRect(),r=Math.max(8,Math.min(n.left-12,document.documentElement.clientWidth-o-8)),l=n.bottom+6+i<=window.innerHeight||n.top<
i+6;bt.style.left=`${r+window.scrollX}px`,bt.style.top=`${(l?n.bottom+6:n.top-i-6)+window.scrollY}px`,ot(`${t}: ${e}`)}document.addEventListener("pointerdown",s=>{
let t=s.target;yt&&!bt.contains(t)&&!yt.contains(t)&&Jt()});window.addEventListener("hashchange",Jt);document.addEventListener("keydown",s=>{s.key!=="Escape"||!yt||
(s.stopPropagation(),yt.focus(),Jt())},{capture:!0});function w(s,t=V[s]){let e=a("button",{type:"button",class:"help","aria-label":`What is ${s}?`,"aria-expand\
ed":"false",onclick:n=>{n.preventDefault(),n.stopPropagation(),yt===e?Jt():Vn(e,s,t)}});return e.textContent="?",e}var U=(s,t=s.toLowerCase())=>a("h3",{},s," ",
w(t));function at(s){let t=A(s),e=Object.hasOwn(V,s)?V[s]:s===d.importance?V.importance:"",n=t?`${z(t.meaning)}${t.unit?` Unit: ${t.unit}.`:""}`:"";return w(s,[e,n].filter(
Boolean).join(" "))}function ke(s){return w(Q(s),_e(s))}function _e(s){let t=Object.hasOwn(d.kinds,s)?d.kinds[s]:null,e=t?`${z(t.meaning)} Its score must be abo\
ve ${t.threshold} and above chance.`:"";return[...tt(s).map(({name:o,meaning:i})=>z(`${o}: ${i}`)),ue(s),e].filter(Boolean).join(" ")}function Kn({q:s,k:t,dim:e},n,o,i,r){let l=n*e,c=l+e,h=o;for(;h+3<i;h+=4){let[u,p,m,f]=[0,0,0,0];for(let v=l,$=h*e;v<c;v+=1,$+=1){let q=s[v];u+=q*t[$],p+=q*t[$+
e],m+=q*t[$+2*e],f+=q*t[$+3*e]}r[h]=u,r[h+1]=p,r[h+2]=m,r[h+3]=f}for(;h<i;h+=1){let u=0;for(let p=l,m=h*e;p<c;p+=1,m+=1)u+=s[p]*t[m];r[h]=u}}function Cs(s,t,e){
let{bias:n,softcap:o,sink:i}=s,[r,l,c]=[s.first[t],s.end[t],s.first.length-1-t];e.fill(0),Kn(s,t,r,l,e);let h=i===void 0?-1/0:i;for(let p=r;p<l;p+=1)o!==void 0&&
(e[p]=o*Math.tanh(e[p]/o)),n&&(e[p]+=n[p+c]),e[p]>h&&(h=e[p]);let u=i===void 0?0:Math.exp(i-h);for(let p=r;p<l;p+=1)e[p]=Math.exp(e[p]-h),u+=e[p];for(let p=r;p<
l;p+=1)e[p]/=u;return e}var Gn=40,Yn=()=>new Promise(s=>setTimeout(s)),We=s=>255*Math.sqrt(s)+.5,ut=class s{constructor(t,e,n){this.name=t,this.queries=n.queries,this.keys=n.keys,this.
rows=e.sequences[n.rows],this.columns=e.sequences[n.columns],this.square=n.rows===n.columns,this.coded=null,this.qk=null,this.norms=null,this.completing=null}static async read(t,e,n,o,i){
let r=new s(t,e,n);return o.map!==void 0?r.coded=await Tt(o.map):r.qk=await Qn(o),n.norms!==null&&(r.norms=mt(await Tt(n.norms)).subarray(i*n.keys,(i+1)*n.keys)),
r}static fromWeights(t,e,n){return s.fromCodes(t,e,Uint8Array.from(n,We))}static fromCodes(t,e,n){let o=e.shown.length,i={label:"",queries:o,keys:o,rows:0,columns:0,
norms:null,heads:[]},r=new s(t,{sequences:[e]},i);return r.coded=n,r}complete(){return this.completing??=this.computeAll(),this.completing}async computeAll(){if(this.
coded)return;let t=new Uint8Array(this.queries*this.keys),e=performance.now();for(let n=0;n<this.queries;n+=1){let o=this.row(n);for(let i=0,r=n*this.keys;i<this.
keys;i+=1)t[r+i]=We(o[i]);performance.now()-e>Gn&&(await Yn(),e=performance.now())}this.coded=t}get bytes(){return(this.coded?.length??0)+(this.qk?4*(this.qk.q.
length+this.qk.k.length):0)}row(t){let e=new Float32Array(this.keys);if(this.qk)return Cs(this.qk,t,e);if(this.coded)for(let n=0;n<this.keys;n+=1)e[n]=(this.coded[t*
this.keys+n]/255)**2;return e}column(t){let e=new Float32Array(this.queries),n=this.coded;if(n)for(let o=0;o<this.queries;o+=1)e[o]=(n[o*this.keys+t]/255)**2;return e}weights(t,e){
return t?this.row(e):this.column(e)}async preview(t){if(this.coded)return{coded:this.coded,queries:this.queries,keys:this.keys};let e=Math.min(t,this.queries),n=new Uint8Array(
e*this.keys);for(let o=0;o<e;o+=1){let i=this.row(Math.floor((o+.5)*this.queries/e));for(let r=0;r<this.keys;r+=1)n[o*this.keys+r]=We(i[r])}return{coded:n,queries:e,
keys:this.keys}}reweighted(t,e){let n=t?this.norms:null,o=e&&this.columns.special.some(Boolean);if(!n&&!o)return this;let i=new Float32Array(this.keys).fill(1);
for(let l=0;l<this.keys;l+=1)n&&(i[l]=n[l]),o&&this.columns.special[l]&&(i[l]=0);let r=Object.create(this);return r.row=l=>Jn(this.row(l),i),this.coded&&(r.coded=
Xn(this.coded,this.queries,this.keys,i)),r}};async function Qn(s){let{q:t,k:e,first:n,end:o,dim:i}=s,r=await Promise.all([t,e,n,o].map(Tt)),l=s.wide?mt:ds;return{
q:l(r[0]),k:l(r[1]),first:Ce(r[2]),end:Ce(r[3]),dim:i,bias:s.bias===void 0?null:mt(await Tt(s.bias)),softcap:s.softcap,sink:s.sink}}function Jn(s,t){let e=0;for(let n=0;n<
s.length;n+=1)s[n]*=t[n],e+=s[n];if(e>0)for(let n=0;n<s.length;n+=1)s[n]/=e;return s}function Xn(s,t,e,n){let o=new Uint8Array(s.length);for(let i=0;i<t;i+=1){let r=i*
e,l=0;for(let c=0;c<e;c+=1)l+=s[r+c]**2*n[c];if(l!==0)for(let c=0;c<e;c+=1)o[r+c]=Math.round(s[r+c]*Math.sqrt(n[c]/l*255*255))}return o}function be(s){P("trouble").textContent=s,P("trouble").hidden=!s}async function qs(s,t){try{return await fetch(s,{...t,cache:"no-store"})}catch(e){throw Xt(e)||
be("The server does not answer. Is multihead serve still running?"),e}}async function He(s,t,e){let n=Object.entries(t).map(([i,r])=>[i,String(r)]),o=await qs(`${s}\
?${new URLSearchParams(n)}`,{signal:e});if(!o.ok){let i=await o.text();throw be(i),new Error(i)}return be(""),o}async function Nt(s,t,e){let n=await He(s,t,e);return new Uint8Array(
await n.arrayBuffer())}var Xt=s=>s instanceof DOMException&&s.name==="AbortError";async function Ns(s){let e=await fetch("text",{method:"POST",body:s,headers:{"\
Content-Type":"text/plain"}});if(!e.ok)throw new Error(await e.text());return e.json()}async function Is(s,t){let e={"Content-Type":"application/json"},n=await qs(
"switches",{method:"POST",body:JSON.stringify(s),headers:e,signal:t});if(!n.ok)throw new Error(await n.text());return be(""),n.json()}var Rs=4096,Zn=256,to=120,j=class s extends ut{constructor(t,e,n,o){super(t,e,n),this.where=o,this.lines=new Map,this.overview=null,this.latest=null,this.asking=
null,this.controller=null,this.timer=0,this.variants=new Map,this.source=[t,e,n]}complete(){return Promise.resolve()}get bytes(){return 4*this.keys*this.lines.size+
2e6}reweighted(t,e){if(!t&&!e)return this;let n=`${t} ${e}`,o=this.variants.get(n);if(!o){let i={...this.where,...t?{norm:1}:{},...e?{hide:1}:{}};o=new s(...this.
source,i),this.variants.set(n,o)}return o}weights(t,e){return this.lines.get(`${t?"row":"column"} ${e}`)??null}async fetchWeights(t,e){let n=this.weights(t,e);if(n)
return n;let o=t?"row":"column",i=mt(await Nt(o,{...this.where,i:e}));return this.lines.size>=Zn&&this.lines.delete(this.lines.keys().next().value??""),this.lines.
set(`${o} ${e}`,i),i}picture(t,e,n,o){let[i,r]=[Math.floor(t.x),Math.floor(t.y)],l=Math.min(this.keys,Math.ceil(t.x+t.w-1e-9))-i,c=Math.min(this.queries,Math.ceil(
t.y+t.h-1e-9))-r,h={width:Math.min(l,e,Rs),height:Math.min(c,n,Rs)},u={x:i,y:r,w:l,h:c,...h},p=Object.values(u).join(" ");return this.latest?.key===p?this.latest:
this.overview?.key===p?this.overview:(this.asking!==p&&(this.cancel(),this.asking=p,this.timer=window.setTimeout(()=>this.fetchPicture(u,p,o),this.overview?to:0)),
this.overview)}async fetchPicture(t,e,n){this.controller=new AbortController;try{let o=await Nt("map",{...this.where,...t},this.controller.signal);this.latest={
key:e,part:t,coded:o,keys:t.width,queries:t.height},t.w===this.keys&&t.h===this.queries&&(this.overview=this.latest),this.asking=null,n()}catch(o){this.asking===
e&&(this.asking=null),Xt(o)||ot(String(o))}}cancel(){clearTimeout(this.timer),this.controller?.abort(),this.asking=null}async preview(t){let[e,n]=[Math.min(t,this.
keys),Math.min(t,this.queries)],o={x:0,y:0,w:this.keys,h:this.queries,width:e,height:n,thin:1};return{coded:await Nt("map",{...this.where,...o}),keys:e,queries:n}}};
function Ps({part:s,keys:t,queries:e},n){let[o,i]=[t/s.w,e/s.h];return{x:(n.x-s.x)*o,y:(n.y-s.y)*i,w:n.w*o,h:n.h*i}}var eo=96e6,so=2048,_t=new Map,Fe=new Map;async function It(s,t){let e=`${s} ${t}`,n=_t.get(e);if(n)return ze(e,n),n;let o=x[t],i=o&&d.texts[s]?.layers[o.site],
r=i?.heads[o.head];if(!i||!r)return null;let l=Fe.get(e);l||(l=r.served?no(s,t):ut.read(d.heads[t],d.texts[s],i,r,o.head),Fe.set(e,l));try{let c=await l;return ze(
e,c),c}finally{Fe.delete(e)}}async function pt(s,t){let e=await It(s,t);return e&&!e.coded&&(await e.complete(),ze(`${s} ${t}`,e)),e}function ze(s,t){_t.delete(
s),_t.set(s,t);let e=0;for(let n of _t.values())e+=n.bytes;for(let[n,o]of _t){if(e<=eo||n===s)break;_t.delete(n),e-=o.bytes}}async function no(s,t){let e=d.texts[s],
n=x[t],o=e.layers[n.site],i={text:s,layer:o.label,head:n.head},{queries:r,keys:l}=o;if(Math.max(r,l)>so)return new j(d.heads[t],e,o,i);let c=new ut(d.heads[t],e,
o),h={x:0,y:0,w:l,h:r,width:l,height:r},[u,p]=await Promise.all([Nt("map",{...i,...h}),Nt("norms",i)]);return c.coded=u,c.norms=mt(p),c}async function xt(s,t,e){
return s instanceof j?s.fetchWeights(t,e):t?s.row(e):(await s.complete(),s.column(e))}function js(s,t,e,n){let o=new Int32Array(n+1);for(let i=0;i<=n;i+=1)o[i]=Math.min(e,Math.floor(s+i/n*t+1e-9));return o}function De({coded:s,keys:t,queries:e},n,o,i){
let r=Ms(),l=new ImageData(o,i),c=new Uint32Array(l.data.buffer),h=js(n.x,n.w,t,o),u=js(n.y,n.h,e,i),p=new Uint8Array(o),m=-1;for(let f=0;f<i;f+=1){let[v,$]=[u[f],
Math.max(u[f]+1,u[f+1])],q=v===m&&$===v+1,O=f*o;if(q){c.copyWithin(O,O-o,O);continue}p.fill(0);for(let g=v;g<$&&g<e;g+=1)for(let R=0,W=g*t;R<o;R+=1){let nt=Math.
min(t,Math.max(h[R]+1,h[R+1])),K=p[R];for(let lt=h[R];lt<nt;lt+=1)s[W+lt]>K&&(K=s[W+lt]);p[R]=K}m=$===v+1?v:-1;for(let g=0;g<o;g+=1)c[O+g]=r[p[g]]}return l}async function _s(s,t){
let e=a("canvas",{class:"thumb","aria-hidden":"true"});B(e,t,t);let n=Math.round(t*Rt()),o=await s.preview(n),i={x:0,y:0,w:o.keys,h:o.queries};return Yt(e).putImageData(
De(o,i,n,n),0,0),e}var Be=s=>s.reduce((t,e)=>e>t?e:t,0),Zt=56;function Ws(s,t,{left:e,width:n,window:o}){let i=B(s,e+n,Zt),r=Math.max(1e-9,Be(t)),l=n/o.w;i.fillStyle=
T("--dim"),i.font=`11px ${D}`,i.textAlign="right",i.textBaseline="top",i.fillText(k(r),e-6,2),i.textBaseline="bottom",i.fillText("0",e-6,Zt-2),i.fillStyle=T("--\
line"),i.fillRect(e,Zt-1,n,1),i.fillStyle=T("--accent");let c=Math.min(t.length,o.x+o.w);for(let h=Math.floor(o.x);h<c;h+=1){let u=t[h]/r*(Zt-8),p=e+(h-o.x)*l;p+
l<=e||u<=.2||i.fillRect(Math.max(e,p),Zt-1-u,Math.max(1,l-(l>4?1:0)),u)}}var oo=5,io=.04,Wt=2e3,vt=class{constructor(t,{hover:e,pick:n,label:o}){this.sequence=t,this.from=0,this.spans=[],this.shades=new Int8Array(0),this.marked=null,
this.painted=[null,null],this.arcs=_("svg",{class:"arcs","aria-hidden":"true"}),this.text=a("p",{class:"tokens","aria-label":o}),this.part=t.shown.length>Wt?a("\
p",{class:"part"}):null,this.box=a("div",{class:"reading"},this.arcs,this.part,this.text),this.fill(0);let i=(r,l)=>this.text.addEventListener(r,c=>{let h=Hs(c);
h!==null&&l(h)});i("pointerover",e),i("focusin",e),i("click",n),this.text.addEventListener("pointerleave",()=>e(null)),this.text.addEventListener("keydown",r=>this.
onKey(r,n))}fill(t){let{shown:e,special:n,joined_to_previous:o}=this.sequence,i=Math.min(Wt,e.length-t);if(this.from=t,this.spans=Array.from({length:i},(c,h)=>{
let u=e[t+h],p=u.length>40?M(u,400):null,f={class:n[t+h]?"token special":"token","data-i":t+h,role:"button",tabindex:h?"-1":"0",title:p};return a("span",f,M(u,40))}),
this.shades=new Int8Array(i),this.marked=null,this.text.replaceChildren(...this.spans.flatMap((c,h)=>[o[t+h]&&h?"":" ",c])),!this.part)return;let r=(c,h)=>{let u=c<
0||c>=e.length;return a("button",{type:"button",disabled:u,onclick:()=>this.showFrom(c)},h)},l=`tokens ${t} to ${t+i-1} of ${e.length}`;this.part.replaceChildren(
r(t-Wt,"earlier"),l,r(t+Wt,"later"))}showFrom(t){this.fill(t),this.draw()}onKey(t,e){let n=Hs(t);if(n===null)return;let o={ArrowLeft:-1,ArrowRight:1,Enter:0," ":0}[t.
key];if(o===void 0)return;if(t.preventDefault(),t.stopPropagation(),o===0){e(n);return}let i=this.spans[n-this.from+o];i&&(this.spans[n-this.from].tabIndex=-1,i.
tabIndex=0,i.focus())}paint(t,e){this.painted=[t,e],this.part&&e!==null&&!this.spanOf(e)&&this.fill(Math.floor(e/Wt)*Wt),this.draw()}spanOf(t){return this.spans[t-
this.from]}draw(){let[t,e]=this.painted,n=t?Math.max(1e-9,Be(t)):1;this.spans.forEach((o,i)=>{let r=t?t[this.from+i]:0,l=r>.001||r>0&&this.part?Math.sqrt(r/n):0,
c=l>.02?Math.round(72*l):0;c!==this.shades[i]&&(this.shades[i]=c,o.style.backgroundColor=c?`color-mix(in srgb, var(--shade) ${c}%, transparent)`:"",o.style.color=
c>0?"var(--ink)":"")}),this.marked?.classList.remove("from"),this.marked=e===null?null:this.spanOf(e)??null,this.marked?.classList.add("from"),this.arcs.replaceChildren(),
t&&e!==null&&this.marked&&this.drawArcs(t,e,this.marked)}drawArcs(t,e,n){let o=this.box.getBoundingClientRect(),i=l=>{let c=l.getBoundingClientRect();return[c.left+
c.width/2-o.left,c.top-o.top]},r=i(n);for(let l of te(t,oo,io,c=>c!==e&&this.spanOf(c)!==void 0)){let c=i(this.spanOf(l)),h=Math.min(r[1],c[1])-Math.min(34,8+Math.
abs(c[0]-r[0])/9),u=_("path",{d:`M${r} C${r[0]},${h} ${c[0]},${h} ${c}`,fill:"none","stroke-width":(.8+3*Math.sqrt(t[l])).toFixed(2),"stroke-opacity":(.35+.6*t[l]).
toFixed(2)});this.arcs.append(u)}}};function Hs(s){let t=ie(s,".token");return t?Number(t.dataset.i):null}function te(s,t,e,n=()=>!0){let o=[];for(let i=0;i<s.length;i+=
1)s[i]>=e&&n(i)&&o.push(i);return o.sort((i,r)=>s[r]-s[i]).slice(0,t)}var ro=3,ao=3,Ue=24,lo=.02,ye=class{constructor(){this.list=a("ol");let t=U("Three rows of this text","example rows");this.element=a("section",{class:"pairs row\
s"},t,this.list)}async show(t){let e;if(t instanceof j){let l=await He("pairs",t.where).catch(()=>null);if(!l)return;e=await l.json()}else e=ho(t);let n=new Set,
o=l=>n.size<n.add(t.rows.shown[l]).size,i=e.map(([,l])=>l).filter(o).slice(0,ro),r=await Promise.all(i.map(l=>xt(t,!0,l))).catch(()=>null);r&&this.list.replaceChildren(
...i.map((l,c)=>co(t,l,r[c])))}};function co(s,t,e){let n=l=>a("span",{class:"word"},M(l,14)),o=te(e,ao,lo).map(l=>a("span",{},n(s.columns.shown[l])," ",a("smal\
l",{},k(e[l])))),i=F({row:String(t),dir:void 0}),r=a("a",{href:i,title:`token ${t}`},n(s.rows.shown[t]));return a("li",{},r," → ",a("span",{class:"keys"},o))}
function ho({coded:s,keys:t,queries:e,square:n,rows:o,columns:i}){let r=[],l=-1;for(let c=0;s&&c<e;c+=1)if(!o.special[c])for(let h=0,u=c*t;h<t;h+=1)s[u+h]<=l||i.
special[h]||n&&c===h||(r.push([s[u+h],c,h]),r.sort((p,m)=>m[0]-p[0]),r.length>Ue&&r.pop(),r.length===Ue&&(l=r[Ue-1][0]));return r.map(([c,h,u])=>[(c/255)**2,h,u])}var Fs=new Map;async function xe(s){let t=Fs.get(s.name);t||(t=Tt(s.line),Fs.set(s.name,t));let e=await t,n=d.pairs?.heads.length??0;return(o,i)=>{let r=e[o*n+i];
return r===255?NaN:s.low+r/254*(1-s.low)}}var zs={cka:"CKA",attention:"attention distance",write:"write overlap",read:"read overlap"},$t=({name:s})=>Object.hasOwn(
zs,s)?zs[s]:s,Ds={correlation:"Do two heads write the same vectors?",cka:"Do two heads write the same, up to a rotation?",attention:"Do two heads look at the sa\
me tokens?",write:"Do two heads write into the same directions, by their weights?",read:"Do two heads read from the same directions, by their weights?"},Ve=({name:s})=>Object.
hasOwn(Ds,s)?Ds[s]:s,ve=s=>`${Ve(s)} ${z(s.meaning)}`,ee=s=>s.name==="attention";function Bs(s,t,e,n){let o=ee(s)?1:-1,i=[];return e.forEach((r,l)=>{for(let c of e.
slice(l+1)){let h=t(r,c);Number.isNaN(h)||i.push(r<c?[r,c,h]:[c,r,h])}}),i.sort((r,l)=>o*(r[2]-l[2])||r[0]-l[0]||r[1]-l[1]).slice(0,n)}var Us={stack:void 0,layer:void 0,head:void 0,row:void 0,second:void 0},uo=4,se=class{constructor(t,e=!1){this.rows=new ye;let n=`Numbers of ${d.heads[t]}`,o=d.
texts.length?this.rows.element:null,i=[po(t),mo(t),o,ko(t),yo(t),$o(t),xo(t),To(t,e)];this.element=a("aside",{class:"panel","aria-label":n},i)}};function po(s){
let t=dt(s);if(!t)return null;let e=et(s),n=b.shares.map((i,r)=>{let[l,c]=[E(`${i.name}_low`,s),E(`${i.name}_high`,s)],h=w(i.name,z(i.meaning)),u=a(e.includes(i)?
"b":"span",{},i.name," ",h);return Vs(u,{label:i.name,value:t[r],color:i.colour,low:l,high:c})}),o=a("p",{class:"dim"},"Parts of log n; the lines are 95 % inter\
vals.");return a("section",{class:"shares"},U("What decides where it looks","shares"),n,o)}function mo(s){if(!A("kind"))return null;let t=N(s),e=d.why?.[d.heads[s]],
n=Object.keys(d.kinds).map(l=>({name:l,score:E(`kind:${l}`,s)})).sort((l,c)=>+(c.name===t)-+(l.name===t)||(c.score??0)-(l.score??0)),o=n.slice(0,uo).map(({name:l,
score:c})=>c===null?null:go(s,l,c,l===t)),i=e?`${V.evidence} Here: ${e}.`:V.evidence,r=a("p",{class:"dim"},"Bars are scores, ticks are thresholds. ",w("score"));
return a("section",{},U("Kind"),a("p",{},a("b",{},J(s))),a("p",{class:"dim"},`${fo(s,n)} `,w("evidence",i)),a("div",{class:"scores"},o,r),wo(s))}function fo(s,t){
let e=t.find(({score:r})=>r!==null);if(!e)return"No kind could be measured.";let{threshold:n}=d.kinds[e.name],o=k(e.score);if(e.name!==N(s))return`${`Closest: ${Q(
e.name)}, with a score of ${o}.`} Its 95 % interval would have to be above ${n} and above chance.`;let i=k(E("kind_control",s));return`Its score is ${o}: clear\
ly above the threshold (${n}) and above chance (${i}).`}function wo(s){let t={position:"positions, not words",content:"words, not positions",both:"positions and\
 words"},e=H("driven",s);if(!Object.hasOwn(t,e))return null;let n=E("driven_score",s),o=`Tokens were shuffled. The value is the overlap of the maps at the same \
positions, minus the overlap at the same words: ${n!==null&&n>0?"+":""}${k(n)}.`;return a("p",{class:"dim"},`Follows ${t[e]} `,w("follows",o))}function go(s,t,e,n){
let{threshold:o}=d.kinds[t],[i,r,l]=["kind_control","kind_low","kind_high"].map(u=>n?E(u,s):null),c=`${Q(t)} ${k(e)}, threshold ${o}`,h=a("span",{},Q(t)," ",ke(
t));return Vs(h,{label:c,value:e,color:qt(t),threshold:o,chance:i,low:r,high:l})}function Vs(s,{label:t,value:e,color:n,threshold:o,chance:i=null,low:r,high:l}){
let c=u=>`${(100*Math.max(0,Math.min(1,u))).toFixed(1)}%`,h=_("svg",{class:"score",role:"img","aria-label":t});return h.append(_("rect",{x:0,y:5,width:"100%",height:6,
class:"track",rx:3}),_("rect",{x:0,y:5,width:c(e),height:6,rx:3,fill:n})),o!==void 0&&h.append(_("rect",{x:c(o),y:1,width:1.5,height:14,class:"tick"})),r!==null&&
l!==null&&h.append(_("line",{x1:c(r),x2:c(l),y1:8,y2:8,class:"ends"})),i!==null&&h.append(_("circle",{cx:c(i),cy:8,r:3,class:"chance"})),a("div",{class:"scoreli\
ne"},s,h,a("span",{class:"value"},k(e)))}function ko(s){if(!d.importance)return null;let t=E("rank",s),e=le(s),n=e===null?"":` ± ${C(e,1)}`,o=t===null?"":`, ra\
nk ${t} of ${d.heads.length}`,i=`${z(A(d.importance)?.meaning??"")} ${z(d.corpus.loss??"")}`.trim();return a("section",{},U("Importance"),a("p",{},a("b",{},C(ft(
s),2)),`${n}${o}.`),bo(s),a("p",{class:"dim"},`${V.importance.split(".")[0]}. `,w("how importance is measured",i)))}function bo(s){if(!d.curve||!it.has(d.heads[s]))
return null;let e=`Can be pruned${it.size>1?`, together with ${it.size-1} others,`:""} for less than ${gt(d.curve.limit)} of quality. `;return a("p",{},e,a("a",
{href:F({...Us,view:"pruning"})},"Show pruning →"))}function yo(s){let t=H("most_similar",s),e=I.get(t);if(e===void 0)return null;let n=`, CKA similarity ${k(
E("most_similar_cka",s))} `,o=F({...Us,view:"similarity",pick:d.heads[s]});return a("section",{},U("Most similar","most similar"),a("p",{},a("a",{href:L(e)},t),
n,w("CKA")),a("p",{},a("a",{href:F({second:t})},"Show side by side →")),a("p",{},a("a",{href:o},"Show all pairs →")))}function xo(s){let t=d.often?.[d.heads[s]];
if(!t?.length)return null;let e="For every token, the other token with the largest weight, special tokens excluded: mean weight × number of times. The pairs wit\
h the most weight in total come first.",n=t.map(([i,r,l,c])=>vo(i,r,`${k(c)} × ${l}`)),o=a("h3",{},"Strongest pairs over the corpus ",w("pairs",e));return a("s\
ection",{class:"pairs often"},o,a("ol",{},n))}function vo(s,t,e){let n=o=>a("span",{class:"word"},M(o,14));return a("li",{},n(s)," → ",n(t),a("span",{class:"v\
alue"},e))}function $o(s){let t=[];for(let h=-64;h<=64;h+=1){let u=E(`offset${h<0?h:`+${h}`}`,s);u!==null&&t.push([h,u])}if(t.length<3)return null;let e=Math.max(
...t.map(([,h])=>h),1e-9),n=100/t.length,i=_("svg",{class:"offsets",role:"img","aria-label":"mean weight by distance",...{viewBox:"0 0 100 40",preserveAspectRatio:"\
none"}});t.forEach(([h,u],p)=>{let m=u/e*38,[f,v]=[(p*n+n*.12).toFixed(2),(40-m).toFixed(2)],$={width:(n*.76).toFixed(2),height:m.toFixed(2)},q=_("rect",{x:f,y:v,
...$,class:h===0?"zero":""});q.append(_("title",{},`${h>0?"+":""}${h}: ${k(u)}`)),i.append(q)});let[r,l]=[t[0][0],t[t.length-1][0]],c=[`${-r} back`,"itself",`${l}\
 ahead`].map(h=>a("span",{},h));return a("section",{},U("Where it looks, by distance","by distance"),i,a("p",{class:"ends dim"},c),a("p",{class:"dim"},`Highest \
bar: ${k(e)} of the weight, mean over the corpus.`))}var So=["kind","most_similar","second","third","order$","cluster$","driven","leading$"],Mo=new RegExp(`^(of\
fset[+-]|(spread|rest|position|word|match)_|${So.join("|")})`);function To(s,t){let e=Object.keys(d.table??{}).filter(c=>!Mo.test(c));if(!e.length)return null;let n=a(
"tbody"),o=()=>{if(!(!l.open||n.firstChild))for(let c of e){let h=At(c,s),u=typeof h=="string"?h:C(h),p=h===null?fs(c,s):"",m=a("td",{},u,p?w(`missing: ${c}`,z(
p)):null),f=a("th",{scope:"row"},c," ",at(c));n.append(a("tr",{},f,m,a("td",{class:"dim"},A(c)?.unit)))}},i=a("table",{class:"measures"},n),r=a("summary",{},`Al\
l ${e.length} measures`),l=a("details",{open:t,ontoggle:o},r,i);return l}var Ao=["kind_score","entropy","max_weight","distance","first","special","previous","ou\
tput_norm"];function Ks(s,t){let n=[d.importance,...Ao].filter(c=>c!==null&&A(c)!==null).map(c=>{let h=a("th",{scope:"row"},c," ",at(String(c)));return a("tr",{},
h,[s,t].map(u=>a("td",{},C(E(c,u)))))}),o=A("kind")?a("tr",{},a("th",{scope:"row"},"kind ",w("kind")),[s,t].map(c=>a("td",{},ws(c)))):null,i=[s,t].map(c=>a("th",
{scope:"col"},d.heads[c])),r=a("thead",{},a("tr",{},a("td"),i)),l=a("table",{class:"measures"},r,a("tbody",{},o,n));return a("div",{class:"pair"},U("Both heads \
in numbers","measures"),l)}function Gs(s,t){let e=a("span",{class:"alikeness"}),{pairs:n}=d;if(!n)return e;let[o,i]=[s,t].map(r=>n.heads.indexOf(d.heads[r]));return Promise.
all(n.measures.map(xe)).then(r=>{e.append("Similarity: "),r.forEach((l,c)=>{let h=n.measures[c],u=`${c?", ":""}${$t(h)} ${k(l(o,i))} `;e.append(u,w($t(h),ve(h)))})}),
e}var Eo=150;function Oo(s){let t=[{key:"head",title:"Head",help:w("head"),value:e=>e,show:e=>d.heads[e]}];if(A("kind")){let e=i=>J(i)||null;t.push({key:"kind",title:"\
Kind",help:w("kind"),value:e,show:Ke,words:!0});let n=i=>E("kind_score",i),o=i=>k(n(i));Qt()||t.push({key:"score",title:"Score",help:w("score"),value:n,show:o})}
if(Qt()){let[e,n]=["shares","Shares"];t.push({key:e,title:n,help:w("shares"),value:Lo,show:Co,words:!0})}if(d.importance){let e=at(d.importance);t.push({key:"im\
portance",title:"Importance",help:e,value:ft,show:qo})}if(A("most_similar")){let e=i=>E("most_similar_cka",i),[n,o]=["most_similar","Most similar"];t.push({key:n,
title:o,help:w("most similar"),value:e,show:No,words:!0})}if(s!=="kind"&&s!=="shares"&&s!==d.importance&&A(s)){let e=o=>At(s,o),n=o=>{let i=e(o);return typeof i==
"string"?i:C(i)};t.push({key:s,title:s,help:at(s),value:e,show:n})}return t}function Ke(s){let t=a("i",{class:"dot","aria-hidden":"true"});return t.style.background=
N(s)?fe(N(s)):"transparent",[t,J(s)||C(null)]}function Lo(s){let t=dt(s),e=b.shares.indexOf(et(s)[0]);return t&&e>=0?2*e-t[e]:null}function Co(s){let t=dt(s);if(!t)
return C(null);let e=b.shares.map(({name:i},r)=>`${i} ${k(t[r])}`).join(", "),n=_("svg",{class:"sharebar",role:"img","aria-label":e,viewBox:"0 0 1 1"});n.setAttribute(
"preserveAspectRatio","none");let o=0;return t.forEach((i,r)=>{n.append(_("rect",{x:o,y:0,width:Math.max(0,i),height:1,fill:b.shares[r].colour})),o+=i}),n}function qo(s){
let t=le(s),e=t===null?null:a("small",{},` ± ${C(t,1)}`);return[C(ft(s),2),e]}function No(s){let t=H("most_similar",s);return t?[`${t} `,a("small",{},k(E("most\
_similar_cka",s)))]:C(null)}function Io(s,t,e){return[...s].sort((n,o)=>{let[i,r]=[t.value(n),t.value(o)];if(i===null||r===null)return+(i===null)-+(r===null)||n-
o;let l=i<r?-1:i>r?1:0;return(e?-l:l)||n-o})}function Ys(s,t,e){let n=Oo(e),o=O=>n.find(g=>g.key===O),i=o(s.sort)??o("importance")??n[0],r=["head","kind","share\
s"].includes(i.key),l=(s.down??(r?"0":"1"))==="1",c=Io(t,i,l),h=n.map(O=>{let g=O===i,R=()=>S({sort:O.key,down:g?l?"0":"1":void 0}),W=g?l?" ↓":" ↑":"",nt=g?
l?"descending":"ascending":"none",K=a("button",{type:"button",onclick:R},O.title+W);return a("th",{scope:"col",class:O.words?"words":"","aria-sort":nt},K,O.help)}),
u=a("tbody"),p=a("button",{type:"button",class:"more"}),m=()=>{let O=u.rows.length;u.append(...c.slice(O,O+Eo).map(g=>Ro(g,n))),p.hidden=u.rows.length>=c.length,
p.textContent=`Show more of ${c.length} heads`};p.addEventListener("click",m),m();let f=a("caption",{class:"quiet"},"All heads"),v=a("table",{class:"heads"},f,a(
"thead",{},a("tr",{},h)),u),$={class:"scroll",tabindex:"0",role:"region","aria-label":"Table of heads"},q=a("button",{type:"button",onclick:_o},"Download CSV");
return a("div",{class:"table"},a("div",$,v,p),a("p",{class:"tail"},q))}function Ro(s,t){let e=t.map(({show:n,words:o},i)=>i===0?a("th",{scope:"row"},a("a",{href:L(
s)},n(s))):a("td",{class:o?"words":""},n(s)));return a("tr",{"data-head":d.heads[s]},e)}var Po=/^[=+\-@\t\r]/;function jo(s){return s===null?"":typeof s=="numbe\
r"?String(s):`"${(Po.test(s)?`'${s}`:s).replaceAll('"','""')}"`}function _o(){let s=Object.keys(d.table??{}),t=d.heads.map((n,o)=>{let{site:i,number:r}=x[o];return[
n,d.sites[i].layer,r,...s.map(l=>At(l,o))]}),e=[["head","layer","number",...s],...t].map(n=>`${n.map(jo).join(",")}\r
`);oe(new Blob(e,{type:"text/csv"}),"heads.csv")}var Wo=84,$e=class{constructor(t,e){this.text=e,this.site=-1,this.slots=[],this.element=a("section",{class:"strip"}),this.show(t)}show(t){x[t].site!==this.site&&
this.fill(x[t].site);for(let{head:e,slot:n}of this.slots)n.href=L(e),n.className=e===t?"slot on":"slot"}fill(t){this.site=t;let{label:e,heads:n}=d.sites[t];this.
slots=Array.from({length:n},(i,r)=>{let l=G[t]+r,c=a("span",{class:"hole"}),h=d.heads[l],u=a("a",{"aria-label":`${h} ${J(l)}`},c,a("span",{class:"name"},h));return{
head:l,slot:u,picture:c}}),this.element.setAttribute("aria-label",`Heads of ${e}`);let o=a("div",{class:"slots"},this.slots.map(({slot:i})=>i));this.element.replaceChildren(
a("h3",{},`All heads of ${e}`),o),this.drawAll()}async drawAll(){let{slots:t}=this;if(d.texts.length)for(let{head:e,slot:n,picture:o}of t){if(await ne(),t!==this.
slots||n!==t[0].slot&&!n.isConnected)return;let i=await It(this.text,e).catch(()=>null);i&&o.replaceChildren(await _s(i,Wo).catch(()=>""))}}};var y=104,Ho=22,Qs=11,Fo=720,Js=4,Ht=class{constructor({point:t,pick:e,drawn:n}){this.point=t,this.pick=e,this.drawn=n,this.map=null,this.window={x:0,y:0,w:1,h:1},
this.mark={row:null,column:null},this.width=0,this.height=0,this.room=0,this.dragged=!1,this.painted=null,this.pointers=new Map,this.canvas=a("canvas",{class:"m\
ap",role:"img",tabindex:"-1"}),this.box=a("div",{class:"mapbox"},this.canvas),this.canvas.addEventListener("wheel",o=>this.onWheel(o),{passive:!1}),this.canvas.
addEventListener("pointerdown",o=>this.onDown(o)),this.canvas.addEventListener("pointermove",o=>this.onMove(o)),this.canvas.addEventListener("pointerup",o=>this.
onUp(o)),this.canvas.addEventListener("pointercancel",o=>this.pointers.delete(o.pointerId)),this.canvas.addEventListener("pointerleave",()=>this.point(null)),this.
canvas.addEventListener("dblclick",()=>this.showAll())}get place(){return{left:y,width:this.width,window:this.window}}show(t){let e=this.map&&this.map.queries===
t.queries&&this.map.keys===t.keys;this.map=t,e||(this.window={x:0,y:0,w:t.keys,h:t.queries});let n=`${t.queries} queries down, ${t.keys} keys across`,o=`Attenti\
on map of ${t.name}: ${n}. The text below has the same weights.`;this.canvas.setAttribute("aria-label",o)}clear(){B(this.canvas,this.canvas.clientWidth,this.canvas.
clientHeight)}showAll(){this.map&&(this.window={x:0,y:0,w:this.map.keys,h:this.map.queries},this.draw())}zoom(t,e=this.width/2,n=this.height/2){let{map:o,window:i}=this;
if(!o)return;let[r,l]=[i.x+e/this.width*i.w,i.y+n/this.height*i.h],c=Math.max(Math.min(Js,o.keys),Math.min(o.keys,i.w/t)),h=Math.max(Math.min(Js,o.queries),Math.
min(o.queries,i.h/t));this.window={w:c,h,x:r-e/this.width*c,y:l-n/this.height*h},this.draw()}clampWindow(){let{map:t,window:e}=this;t&&(e.x=Math.max(0,Math.min(
t.keys-e.w,e.x)),e.y=Math.max(0,Math.min(t.queries-e.h,e.y)))}onWheel(t){if(t.deltaY>0&&this.window.w>=(this.map?.keys??0)&&!t.ctrlKey&&!t.metaKey)return;t.preventDefault();
let[n,o]=ct(t,this.canvas);this.zoom(Math.exp(-t.deltaY/300),n-y,o-y)}onDown(t){this.canvas.setPointerCapture(t.pointerId),this.pointers.set(t.pointerId,ct(t,this.
canvas)),this.dragged=!1}onMove(t){let e=ct(t,this.canvas),n=this.pointers.get(t.pointerId);if(!n){this.point(this.cellAt(e));return}let o=[...this.pointers].find(
([i])=>i!==t.pointerId)?.[1];if(o){let i=c=>Math.hypot(c[0]-o[0],c[1]-o[1]),[r,l]=[(e[0]+o[0])/2-y,(e[1]+o[1])/2-y];this.dragged=!0,this.zoom(i(e)/Math.max(1,i(
n)),r,l)}else if(this.dragged||Math.hypot(e[0]-n[0],e[1]-n[1])>4)this.dragged=!0,this.window.x-=(e[0]-n[0])/this.width*this.window.w,this.window.y-=(e[1]-n[1])/
this.height*this.window.h,this.draw();else return;this.pointers.set(t.pointerId,e)}onUp(t){if(this.pointers.delete(t.pointerId),this.dragged)return;let e=this.cellAt(
ct(t,this.canvas));e&&this.pick(e)}cellAt([t,e]){let{map:n,window:o}=this;if(!n||t<y||e<y)return null;let i=Math.floor(o.x+(t-y)/this.width*o.w),r=Math.floor(o.
y+(e-y)/this.height*o.h);return r>=0&&i>=0&&r<n.queries&&i<n.keys?[r,i]:null}observeWidth(){this.room=this.box.clientWidth,new ResizeObserver(()=>{let t=this.box.
clientWidth;t!==this.room&&(this.room=t,this.draw())}).observe(this.box)}draw(){let{map:t}=this;if(!t)return;this.clampWindow(),this.room||this.observeWidth(),this.
width=Math.max(80,Math.min(this.room||560,Fo)-y),this.height=Math.max(80,Math.min(1.6*this.width,this.width*t.queries/t.keys));let e=B(this.canvas,this.width+y,
this.height+y),n=Math.round(y*Rt()),o=this.paint(t);this.canvas.toggleAttribute("data-waiting",t instanceof j&&t.asking!==null),o&&e.putImageData(o,n,n),this.drawFrame(
e,t),this.drawMarks(e),this.drawn()}paint(t){let e=Rt(),[n,o]=[Math.round(this.width*e),Math.round(this.height*e)],i=()=>this.box.isConnected&&this.draw(),r=t instanceof
j?t.picture(this.window,n,o,i):null,l=t.coded??r?.coded;if(!l)return null;let c=[...Object.values(this.window),n,o].join(" ");if(this.painted?.key!==c||this.painted.
from!==l){let h=r??{coded:l,keys:t.keys,queries:t.queries},u=r?Ps(r,this.window):this.window;this.painted={key:c,from:l,image:De(h,u,n,o)}}return this.painted.image}drawFrame(t,e){
let{window:n,width:o,height:i}=this,[r,l]=[o/n.w,i/n.h];t.strokeStyle=T("--line"),t.strokeRect(y-.5,y-.5,o+1,i+1),t.font=`600 12px ${D}`,t.fillStyle=T("--ink"),
t.textBaseline="middle",t.textAlign="center",t.fillText(o<180?"key":"key: the token looked at",y+o/2,8),rt(t,i<180?"query":"query: the token that looks",8,y+i/2),
t.textAlign="right";let c=(p,m,f)=>(t.fillStyle=T(f?"--ink":m?"--faint":"--dim"),t.font=`${f?"600 ":""}11px ${D}`,zo(t,p,y-Ho-8)),h=Math.max(1,Math.ceil(Qs/l));
for(let p=Math.ceil(n.y/h-1e-9)*h;p<Math.min(e.queries,n.y+n.h);p+=h){let m=y+(p+.5-n.y)*l;m<y+2||m>y+i-2||t.fillText(c(e.rows.shown[p],e.rows.special[p],p===this.
mark.row),y-6,m)}t.textAlign="left";let u=Math.max(1,Math.ceil(Qs/r));for(let p=Math.ceil(n.x/u-1e-9)*u;p<Math.min(e.keys,n.x+n.w);p+=u){let m=y+(p+.5-n.x)*r;if(m<
y+2||m>y+o-2)continue;let f=c(e.columns.shown[p],e.columns.special[p],p===this.mark.column);rt(t,f,m,y-6)}}drawMarks(t){let{window:e,width:n,height:o}=this,{row:i,
column:r}=this.mark,[l,c]=[n/e.w,o/e.h];t.save(),t.beginPath(),t.rect(y,y,n,o),t.clip(),t.strokeStyle=T("--mark"),t.lineWidth=1.5,i!==null&&t.strokeRect(y-2,y+(i-
e.y)*c,n+4,Math.max(2,c)),r!==null&&t.strokeRect(y+(r-e.x)*l,y-2,Math.max(2,l),o+4),t.restore()}savePng(){let{map:t}=this;if(!t)return;let e=a("canvas",{width:this.
canvas.width,height:this.canvas.height}),n=Yt(e);n.fillStyle=T("--paper"),n.fillRect(0,0,e.width,e.height),n.drawImage(this.canvas,0,0),e.toBlob(o=>o&&oe(o,`${t.
name}.png`))}};function zo(s,t,e){let n=M(t,18);for(;n.length>2&&s.measureText(n).width>e;)n=`${Array.from(n).slice(0,-2).join("")}…`;return n}var Xs=new Map;function Ft(s){let t=Z(s.text,d.texts.length)??-1;return d.texts[t]?t:d.texts.findIndex(Boolean)}function zt(s){let{texts:t}=d;if(!t.length)return[];
let{source:e}=t[s],n=new Map,o=[];t.forEach((l,c)=>{n.has(l.source)||n.set(l.source,c),l.source===e&&o.push([String(c),`${l.window[0]+1} of ${l.window[1]}`])});
let i=l=>S({text:l,row:void 0}),r=[];if(n.size>1){let l=[...n.values()].map(c=>[String(c),t[c].name]);r.push(X("Text",l,String(n.get(e)),i))}return o.length>1&&
r.push(X("Window",o,String(s),i)),[...r,Ge({},s)]}function Ge(s={},t=-1){if(!d.served)return null;let n=a("textarea",{rows:"5","aria-label":"Your text",placeholder:"\
Type or paste a text"});n.value=Xs.get(t)??"";let o=a("button",{type:"button",class:"primary"},"Show this text"),i=a("span",{class:"dim",role:"status"});return o.
addEventListener("click",async()=>{if(!n.value.trim()){i.textContent="Type a text first.",n.focus();return}o.disabled=!0,i.textContent="The model is reading it \
…";try{let{texts:r,first:l}=await Ns(n.value);r.forEach((c,h)=>d.texts[l+h]=c),Xs.set(l,n.value),S({...s,text:String(l),row:void 0})}catch(r){i.textContent=r instanceof
Error?r.message:String(r)}o.disabled=!1}),a("details",{class:"own"},a("summary",{},"Try your own text"),n,a("p",{},o," ",i))}var Dt="looks",Bt="seen",Do=1e6,Bo=80,Uo=70;function en(s,t){let e=s.second===void 0?void 0:I.get(s.second),n=new Ye(s,t,e??null);return{element:n.element,start:()=>n.
start(),resize:()=>n.paint(),stop:()=>n.stop(),moveTo:(o,i)=>n.moveTo(o,i)}}function Zs(s){let{stack:t,layer:e,head:n,row:o,...i}=s;return JSON.stringify(i)}var Ye=class{constructor(t,e,n){
this.state=t,this.head=e,this.second=n,this.text=Ft(t),this.looks=t.dir!==Bt,this.live=!0,this.turn=0,this.pinned=null,this.token=null,this.cell=null,this.timer=
0,this.texts=null,this.spoken=a("p",{class:"said"}),this.panes=(n===null?[e]:[e,n]).map(c=>this.makePane(c)),this.textSide=a("div",{class:"textside"}),this.panel=
n===null?new se(e):null,this.top=tn(e,n),this.strip=new $e(e,this.text),this.compare=this.compareControl();let o=this.panel?.element??Ks(e,n),i=a("div",{class:"\
panes"},this.panes.map(c=>c.box)),r=a("div",{class:"mapside"},this.controls(),i,this.textSide),l=a("div",{class:n===null?"scene":"scene both"},r,o);this.element=
a("div",{class:"headview"},this.top,l,this.strip.element)}makePane(t){let e=a("p",{class:"cellnote"}),n=a("canvas",{class:"profile","aria-hidden":"true"}),o=new Ht(
{point:h=>{this.cell=h,this.aim(h&&h[this.looks?0:1])},pick:h=>this.pin(h[this.looks?0:1]),drawn:()=>this.drawProfiles()}),i=(h,u,p)=>a("button",{type:"button",
"aria-label":p,onclick:u},h),r=a("div",{class:"zoom"});r.append(i("+",()=>o.zoom(1.6),"Zoom in"),i("−",()=>o.zoom(1/1.6),"Zoom out"),i("Whole map",()=>o.showAll(),
"Whole map"),i("PNG",()=>o.savePng(),"Download the map as PNG"));let l=this.second===null?null:a("h3",{},`${d.heads[t]} `,a("small",{},J(t))),c=a("div",{class:"\
under"},Vo(),r,e);return{head:t,map:null,view:o,profile:n,note:e,box:a("div",{class:"pane"},l,o.box,n,c)}}compareControl(){let t=H("most_similar",this.head),{site:e}=x[this.
head],n=d.heads.filter((l,c)=>x[c].site===e&&l!==d.heads[this.head]),o=[...new Set([t,...n])].filter(Boolean).map(l=>a("option",{value:l})),i=a("input",{list:"o\
thers",placeholder:t?`e.g. ${t}`:"head",size:"9","aria-label":"Compare with head",autocomplete:"off",onchange:()=>{let l=i.value.trim();S({second:I.has(l)?l:void 0})}});
i.value=this.state.second??"";let r=a("label",{},a("span",{},"Compare with"),i);return a("div",{class:"choice"},r,a("datalist",{id:"others"},o))}controls(){let{
norm:t,hide:e}=this.state;return a("div",{class:"controls"},zt(this.text),this.compare,Ut("norm-weighted",t==="1",n=>S({norm:n?"1":void 0}),w("norm-weighted")),
Ut("hide delimiters",e==="1",n=>S({hide:n?"1":void 0}),w("hide delimiters")))}async start(){let t=await Promise.all(this.panes.map(e=>pt(this.text,e.head))).catch(
()=>[null]);this.live&&this.showMaps(t)}moveTo(t,e){let{map:n}=this.panes[0],o=n!==null&&!(n instanceof j);return this.second===null&&this.texts&&o&&Zs(t)===Zs(
this.state)?this.turnTo(t,e):null}async turnTo(t,e){this.state=t,this.head=e,this.turn+=1;let{turn:n}=this,o=setTimeout(()=>n===this.turn&&this.panes[0].view.clear(),
Bo),i=await pt(this.text,e).catch(()=>null);if(clearTimeout(o),!this.live||n!==this.turn)return;this.panes[0].head=e;let r=this.panel?.element.querySelector("de\
tails[open]")!==null,[l,c,h]=[new se(e,r),tn(e,null),this.compareControl()];this.panel?.element.replaceWith(l.element),this.top.replaceWith(c),this.compare.replaceWith(
h),Object.assign(this,{panel:l,top:c,compare:h}),this.strip.show(e),this.showMaps([i])}showMaps(t){let{norm:e,hide:n}=this.state;if(!t[0]){this.texts=null;let r=d.
served?"The map of this head did not arrive.":"The map of this head is not in this page.";this.textSide.replaceChildren(a("p",{class:"dim"},r)),this.panes.forEach(
l=>l.box.remove());return}this.panes.forEach((r,l)=>{r.map=t[l]?.reweighted(e==="1",n==="1")??null,r.map&&r.view.show(r.map)});let o=this.panes[0].map,i=this.token===
this.pinned?null:this.token;this.pinned=Z(this.state.row,this.looks?o.queries:o.keys),this.token=i??this.pinned,(this.texts?.rows.sequence!==o.rows||this.texts.
columns.sequence!==o.columns)&&this.makeTexts(o),this.paint(),this.panel?.rows.show(t[0]),this.second===null&&!d.served&&o.queries*o.keys<=Do&&this.computeAhead()}async computeAhead(){
let{turn:t}=this;for(let e of[[0,1],[1,0],[0,-1],[-1,0]]){if(await ne(),!this.live||t!==this.turn)return;await pt(this.text,Et(this.head,e)).catch(()=>null)}}stop(){
this.live=!1;for(let{map:t}of this.panes)t instanceof j&&t.cancel()}makeTexts(t){this.token=this.pinned,this.cell=null;let e=(l,c)=>new vt(l,{hover:h=>this.aim(
h),pick:h=>this.pin(h),label:c}),n=e(t.rows,t.square?"Tokens of the text":"Tokens that look"),o=t.square?n:e(t.columns,"Tokens that are looked at");this.texts={
rows:n,columns:o};let i=this.second===null?"Text":`Text, as ${d.heads[this.head]} reads it`,{note:r}=d.texts[this.text];this.textSide.replaceChildren(a("div",{class:"\
texttop"},a("h3",{},i),this.directionControl()),r?a("p",{class:"dim"},z(r)):"",...new Set([n.box,o.box]),this.spoken)}directionControl(){let t=(o,i)=>{let l=a("\
input",{type:"radio",name:"way",value:o,onchange:()=>S({dir:o===Dt?void 0:o})});return l.checked=o===Dt===this.looks,a("label",{},l,i)},e=a("legend",{class:"qui\
et"},"Direction"),n=[t(Dt,"where a token looks"),t(Bt,"who looks at a token")];return a("fieldset",{class:"way"},e,n,w("direction"))}aim(t){this.token=t??this.pinned,
this.paint()}pin(t){this.pinned=this.pinned===t?null:t,this.token=this.pinned,wt({row:this.pinned===null?void 0:String(t)}),this.paint()}paint(){let{texts:t,token:e,
looks:n}=this,o=this.panes[0].map;if(!t||!o)return;for(let c of this.panes)c.map&&(c.view.mark=n?{row:e,column:null}:{row:null,column:e},c.view.draw(),c.note.textContent=
this.cellText(c.map));let i=e===null?null:o.weights(n,e);e!==null&&!i&&this.fetchWeights(e);let[r,l]=n?[t.rows,t.columns]:[t.columns,t.rows];r===l?r.paint(i,e):
(r.paint(null,e),l.paint(i,null)),this.spoken.textContent=this.tokenText(o,i)}fetchWeights(t){clearTimeout(this.timer),this.timer=window.setTimeout(async()=>{if(!this.
live||t!==this.token)return;let e=this.panes.map(({map:n})=>n&&xt(n,this.looks,t));await Promise.all(e).catch(()=>{}),this.live&&t===this.token&&this.panes[0].map?.
weights(this.looks,t)&&this.paint()},this.pinned===t?0:Uo)}cellText(t){if(!this.cell)return" ";let[e,n]=this.cell,o=t.weights(!0,e);return o?`“${M(t.rows.shown[e],
16)}” → “${M(t.columns.shown[n],16)}” ${o[n].toFixed(3)}`:" "}tokenText(t,e){if(this.token===null)return"Point at a token, in the text or on the map; c\
lick to keep it.";let[n,o]=this.looks?[t.rows,t.columns]:[t.columns,t.rows],i=`“${M(n.shown[this.token],24)}”, token ${this.token}`;if(!e)return`${i}: loadi\
ng …`;let r=c=>`“${M(o.shown[c],16)}” ${k(e[c])}`,l=te(e,6,.005).map(r).join(", ")||"no token with much weight";return`${i}, ${this.looks?"looks at":"is l\
ooked at by"} ${l}`}drawProfiles(){for(let{map:t,view:e,profile:n}of this.panes){let o=this.token===null||!this.looks?null:t?.weights(!0,this.token)??null;n.style.
visibility=o?"visible":"hidden",o&&Ws(n,o,e.place)}}};function Vo(){let s=Pt(o=>ht(Pe(),o)),t=[0,.1,.25,.5,1].map(o=>{let i=a("span",{},String(o));return i.style.
left=`${100*o**b.weight_exponent}%`,i}),e=a("div",{class:"scale"},s,a("div",{class:"ticks","aria-hidden":"true"},t)),n=a("span",{},"attention weight, square-roo\
t scale ",w("weight"));return a("div",{class:"weightbar"},e,n,a("span",{},"reading the map ",w("attention map")))}function tn(s,t){let e=(i,r,l)=>{let c=Et(s,i),
h=`${l}: ${d.heads[c]}`;return a("a",{href:L(c),class:"step",title:h,"aria-label":h},r)},n=a("span",{class:"steps"});n.append(e([0,-1],"←","previous head"),e(
[0,1],"→","next head"),e([-1,0],"↑","previous layer"),e([1,0],"↓","next layer"));let o=t===null?Ls(s):Gs(s,t);return a("div",{class:"headtop"},a("h2",{},d.
heads[s]),t===null?null:a("span",{class:"beside"},`and ${d.heads[t]}`),A("kind")&&t===null?a("span",{class:"chip"},Ke(s)):null,n,a("a",{href:F(de),class:"back"},
"← All heads"),a("p",{class:"does"},o))}var sn=s=>X("Show",[[Dt,"where the token looks"],[Bt,"who looks at the token"]],s?Dt:Bt,t=>S({dir:t===Dt?void 0:t}),w(
"direction"));function nn(s,t){return s==="shares"?Ko(t):s==="kind"?Go(t):Yo(s)}function Ko(s){let t=b.shares.map(({name:r,colour:l,meaning:c})=>{let h=d.heads.filter((u,p)=>et(
p).some(m=>m.name===r)).length;return a("li",{},an("share",r,r,l,h,s),a("span",{class:"meaning"},c))}),e=on().filter(([r])=>r&&!tt(r).length),n=e.length?a("div",
{class:"legend"},rn(e,s)):null;return a("div",{},a("p",{class:"legend"},a("b",{},"What decides where a head looks ",w("shares")),a("span",{class:"dim ringhint"},
"Ring: the five shares. Disc: the share that leads, or two."),a("span",{class:"dim tilehint"},"Colour: the share that leads, or two; weaker where it is small.")),
a("ul",{class:"sharelist"},t),n,a("p",{class:"legend hints"},a("span",{class:"ringhint"},ln()),cn(),a("span",{class:"dim"},"Click a share or a kind to list its \
heads.")))}function Go(s){let t=a("span",{class:"dim"},"Click a kind to list its heads.");return a("div",{class:"legend"},rn(on(),s),ln(),cn(),t)}function on(){
let s=new Map;for(let t of d.heads.keys()){let e=Lt(N(t));s.set(e,(s.get(e)??0)+1)}return[...s].sort((t,e)=>e[1]-t[1])}function rn(s,t){let e=s.map(([n,o])=>a("\
span",{class:"keyhelp"},an("kind",n,Q(n),fe(n),o,t),ke(n)));return[a("b",{},"Kinds of heads ",w("kind")),e]}function an(s,t,e,n,o,i){let r=a("i",{class:"dot"});
r.style.background=n;let l=i[s]===t,c=()=>S({share:void 0,kind:void 0,[s]:l?void 0:t}),h=a("button",{type:"button",class:"key","aria-pressed":String(l),onclick:c});
return h.append(r,e,a("small",{},String(o))),h}var ln=()=>d.importance?a("span",{class:"dim"},"Larger: more important ",w("importance")):null,cn=()=>it.size?a("\
span",{class:"dim"},"Hollow: can be pruned ",w("can be pruned")):null;function Yo(s){let{ramp:t,low:e,high:n}=je(ae(s));if(e>n)return a("p",{class:"legend"});let o=Pt(
r=>ht(t,r)),i=a("span",{class:"dim"},s," ",at(s));return a("p",{class:"legend"},C(e),o,C(n),i)}var Qo=["entropy","max_weight","distance","first","special","previous","next","self","induction","same_token","output_norm","kind_score","driven_score","most_si\
milar_cka"];function Jo(){let s=ms(),t=[d.importance??"",...Qo].filter(e=>s.includes(e));return[...t,...s.filter(e=>!t.includes(e))]}function Xo(s){let t=s.map(
e=>[e,e]);return A("kind")&&t.unshift(["kind","kind of head"]),Qt()&&t.unshift(["shares","what decides where it looks"]),t}function Zo({share:s,kind:t}){let e=i=>et(
i).some(({name:r})=>r===s),n=i=>Lt(N(i))===t,o=i=>d.heads.some((r,l)=>i(l));return o(e)?{share:s,has:e}:o(n)?{kind:t,has:n}:{has:()=>!0}}function dn(s){let t=Xo(
Jo()),e=t.find(([p])=>p===s.color)?.[0]??t[0]?.[0]??"kind",{share:n,kind:o,has:i}=Zo(s),r=new we(e,i),l=a("section",{class:"gridside","aria-label":"Grid of head\
s"});l.append(ei(e,t),r.box,nn(e,{share:n,kind:o}),r.note);let c=[...d.heads.keys()].filter(i),h=d.table?a("section",{class:"tableside","aria-label":"Table of h\
eads"}):null,u=c.length;return n!==void 0&&h?.append(hn(`in which ${n} leads`,ti(n),u)),o!==void 0&&h?.append(hn(`of kind “${Q(o)}”`,_e(o),u)),h?.append(Ys(
s,c,e)),{element:a("div",{class:"two"},l,h),start:()=>r.draw(),resize:()=>r.draw()}}var ti=s=>z(tt(s)[0]?.meaning??"");function ei(s,t){let e=Ge({view:"tokens"});
if(!t.length)return a("div",{class:"controls"},e);let n=s==="kind"||s==="shares"?w(s):at(s);return a("div",{class:"controls"},X("Colour by",t,s,i=>S({color:i,kind:void 0,
share:void 0}),n),e)}function hn(s,t,e){let o=a("button",{type:"button",onclick:()=>S({kind:void 0,share:void 0})},"Show all heads");return a("p",{class:"filter"},
a("b",{},`${Y(e,"head")} ${s}`),": ",t," ",o)}var St=320,Qe={left:66,right:12,top:10,bottom:46},si=2;function pn(s){let{curve:t,cost:e}=d,n=e?new Xe(e):null,o=a("div",{class:"cutview"});if(!t?.curves.length)
return o.append(a("p",{class:"lead"},"The quality without some of the heads was not measured for this page.")),n&&o.append(n.element),{element:o};let i=new Ze(s,
t,n),r=a("p",{class:"lead"},a("b",{},ni(t))," ",w("can be pruned")," ",oi(t)),l=a("section",{},i.list);return o.append(r,a("div",{class:"two"},a("section",{class:"\
curveside"},i.element),l)),n&&o.append(n.element),{element:o,start:()=>i.draw(),resize:()=>i.draw()}}var mn=s=>s.heads??s.curves[0].order.length;function ni(s){
let t=gt(s.limit,3);return s.prunable?`${s.prunable} of ${mn(s)} heads can be pruned for less than ${t} of quality.`:`No head can be pruned for less than ${t} o\
f quality.`}function oi(s){if(!s.cut)return"Heads are switched off together, the least important first, and the model is measured again. Nothing is refitted her\
e: real pruning (multihead prune) does better.";let t=Y(s.fitted??0,"document"),e=`its quality measured on ${s.judged} others`;return`Every point is a pruned mo\
del: its weights were refitted on ${t}, ${e}.`}var Xe=class{constructor(t){this.cost=t,this.table=a("div",{class:"scroll wide"});let e=U("What attention costs",
"attention costs"),n=a("p",{class:"dim"},t.title.slice(1).join(" · "));this.element=a("section",{},e,n,this.table),this.show()}show(t){let{heading:e,rows:n}=this.
cost,o=t?.cost,i=o?[e[0],`with ${t.kept} heads`]:e,r=o?n.map(([p,m],f)=>[p,m,o[f]]):n,l=["none",b.format.missing],c=r.filter(([,...p])=>p.some(m=>!l.includes(m))),
h=a("tr",{},a("td"),i.map(p=>a("th",{scope:"col"},p))),u=c.map(([p,...m])=>a("tr",{},a("th",{scope:"row"},p," ",ii(p)),m.map(f=>a("td",{},f))));this.table.replaceChildren(
a("table",{class:"cost"},a("thead",{},h),a("tbody",{},u)))}};function ii(s){let t=`cost: ${s}`;return Object.hasOwn(V,t)?w(s,V[t]):null}var Ze=class{constructor(t,e,n){
this.curve=e,this.costs=n,this.total=mn(e),this.which=Z(t.method,e.curves.length)??0,this.line=e.curves[this.which],this.points=un(this.line.points);let o=Z(t.gone,
this.total+1)??e.prunable,[i,r]=e.cut?[this.points.length-1,this.nearest(o)]:[this.total,o];this.slider=a("input",{type:"range",min:0,max:i,value:r,"aria-label":"\
heads removed"}),this.slider.addEventListener("input",()=>{wt({gone:String(this.removed)}),this.draw()}),this.canvas=a("canvas",{class:"curve",role:"img","aria-\
label":"Quality lost against heads kept"}),this.frame=a("div",{class:"gridbox"},this.canvas),this.list=a("div",{class:"gone"});let l=a("h3",{},`Quality lost: ${e.
unit} `,w("quality lost")),c=a("label",{class:"slider"},a("span",{},"heads removed"),this.slider);this.element=a("div",{},l,this.frame,c,this.legend())}get removed(){
let t=Number(this.slider.value);return this.curve.cut?this.points[t].gone:t}nearest(t){let e=this.points.map(n=>Math.abs(n.gone-t));return e.indexOf(Math.min(...e))}legend(){
let{curves:t}=this.curve;if(t.length===1)return a("p",{class:"legend dim"},t[0].method," ",w("method"));let e=t.map((n,o)=>{let i=a("i",{class:"dot"});i.style.background=
Re(o);let r=()=>S({method:String(o),gone:String(this.removed)}),l=String(o===this.which);return a("button",{type:"button",class:"key","aria-pressed":l,onclick:r},
i,n.method)});return a("p",{class:"legend",role:"group","aria-label":"method"},e,w("method"))}lossAt(t){let{points:e}=this,n=e.findIndex(r=>r.gone>=t);if(n<0)return e[e.
length-1].lost;if(n===0||e[n].gone===t)return e[n].lost;let[o,i]=[e[n-1],e[n]];return o.lost+(t-o.gone)/(i.gone-o.gone)*(i.lost-o.lost)}draw(){let{left:t,right:e,
top:n,bottom:o}=Qe,i=Math.min(this.frame.clientWidth||560,720),r=B(this.canvas,i,St),l=this.curve.curves.flatMap(({points:m})=>m.map(({lost:f})=>Math.min(f,si))),
[c,h]=[Math.min(0,...l),Math.max(.01,this.curve.limit,...l)],u=m=>t+m/this.total*(i-t-e),p=m=>St-o-(m-c)/(h-c)*(St-n-o);this.drawAxes(r,i,u,p,c,h),r.save(),r.beginPath(),
r.rect(t,n-4,i-t,St-n-o+8),r.clip(),this.curve.curves.forEach((m,f)=>{let v=un(m.points);r.strokeStyle=r.fillStyle=Re(f),r.lineWidth=f===this.which?2.5:1.2,r.beginPath();
for(let $ of v)r.lineTo(u($.gone),p($.lost));r.stroke();for(let $ of v)r.beginPath(),r.arc(u($.gone),p($.lost),3,0,2*Math.PI),r.fill()}),r.restore(),r.strokeStyle=
T("--mark"),r.lineWidth=1.5,Je(r,u(this.removed),n,u(this.removed),St-o),this.describe(this.removed)}drawAxes(t,e,n,o,i,r){let{left:l,right:c,bottom:h}=Qe,u=o(this.
curve.limit);t.font=`11px ${D}`,t.fillStyle=T("--dim"),t.strokeStyle=T("--line"),t.lineWidth=1,t.textBaseline="middle";for(let p=0;p<=4;p+=1){let m=i+(r-i)*p/4;
t.textAlign="right",(Math.abs(o(m)-u)>12||p===0)&&t.fillText(`${Math.round(100*m)} %`,l-8,o(m)),Je(t,l,o(m),e-c,o(m));let f=Math.round(this.total*(4-p)/4);t.textAlign=
p===0?"left":p===4?"right":"center",t.fillText(String(f),n(this.total-f),St-h+14)}t.textAlign="center",t.fillStyle=T("--ink"),t.font=`600 12px ${D}`,t.fillText(
"heads kept",(l+e-c)/2,St-8),rt(t,"quality lost",8,(Qe.top+St-h)/2),t.textAlign="right",t.fillText(`${Number((100*this.curve.limit).toPrecision(3))} %`,l-8,u),t.
setLineDash([4,4]),t.strokeStyle=T("--dim"),Je(t,l,u,e-c,u),t.setLineDash([])}describe(t){let e=this.points.find(u=>u.gone===t),n=e?.heads??this.line.order.slice(
0,t),i=`: ${e?"":"about "}${gt(this.lossAt(t))} of quality lost.`,r=`${Y(t,"head")} removed, ${this.total-t} of ${this.total} heads kept`,l=d.sites.map(u=>{let p=n.
filter(f=>Vt(f)===u.label),m=a("td",{class:"few"},`${u.heads-p.length} of ${u.heads}`);return a("tr",{},a("th",{scope:"row"},u.label),m,a("td",{class:"names"},ri(
p)))}),c=["layer","heads kept","removed heads"].map(u=>a("th",{scope:"col"},u)),h=a("table",{class:"gonetable"},a("thead",{},a("tr",{},c)),a("tbody",{},l));this.
list.replaceChildren(a("p",{},a("b",{},r),i),...ai(e),a("div",{class:"scroll"},h)),this.costs?.show(e)}},un=s=>[...s].sort((t,e)=>t.gone-e.gone);function ri(s){
return s.map((t,e)=>{let n=I.get(t);return[e?" ":"",n===void 0?t:a("a",{href:L(n)},t)]})}function ai(s){let t=[];if(s?.parameters){let e=d.model.parameters,n=gt(
1-s.parameters/e);t.push(a("p",{},`${Gt(e)} parameters → ${Gt(s.parameters)} (${n} less)`))}if(s?.speed){let{ratio:e,low:n,high:o,batch:i,tokens:r,rounds:l,verdict:c}=s.
speed,h=c==="faster"||c==="slower"?`${C(e)} times as fast`:c,p=`${`${n.toFixed(2)} to ${o.toFixed(2)}`}, ${l} interleaved rounds, ${i} × ${r} tokens`;t.push(a(
"p",{class:"dim"},`The model on this machine: ${h} (${p}).`))}return t}function Je(s,t,e,n,o){s.beginPath(),s.moveTo(t,e),s.lineTo(n,o),s.stroke()}var li=10,fn=40,ci=18,hi=760;function wn(s){let t=d.pairs,e=g=>t.measures.find(R=>R.name===g),n=e(s.measure)??e(t.by)??t.measures[0],o=[...new Set(t.heads.map(Vt))],
i=o.find(g=>g===s.scope),r=s.order!=="layer",l=(r?t.order:t.heads.map((g,R)=>R)).filter(g=>i===void 0||Vt(t.heads[g])===i),c=new ts(t,n,l,s.pick),h=a("ol",{class:"\
toppairs"}),u=[["cluster","similar heads together"],["layer","by layer"]],p=[["all","all layers"],...o.map(g=>[g,g])],m=a("div",{class:"controls"},X("Measure",t.
measures.map(g=>[g.name,$t(g)]),n.name,g=>S({measure:g}),w($t(n),ve(n))),X("Order",u,r?"cluster":"layer",g=>S({order:g==="layer"?g:void 0})),X("Heads",p,i??"all",
g=>S({scope:g==="all"?void 0:g}))),f=a("section",{class:"groups"},U("Most similar pairs"),h),v=a("section",{class:"pairside"},c.box,c.legend(),c.note),$=a("div",
{class:"two"},v,a("div",{},f,ui(t)));return{element:a("div",{},a("p",{class:"lead"},Ve(n)),m,$),start:async()=>{let g=await xe(n);c.show(g);let R=Bs(n,g,l,li);h.
replaceChildren(...R.map(W=>di(t,n,W)))},resize:()=>c.draw()}}function di(s,t,[e,n,o]){let[i,r]=[s.heads[e],s.heads[n]],l=`${$t(t)} ${k(o)}`;return a("li",{},a(
"a",{href:gn(i,r)},`${i} and ${r}`),a("span",{class:"value"},l))}var gn=(s,t)=>F({view:void 0,pick:void 0,...Ot(I.get(s)??0),second:t});function ui({groups:s,notes:t}){
let e=i=>i.map((r,l)=>[l?" ":"",a("a",{href:L(I.get(r)??0)},r)]),n=s.length?a("ul",{},s.map(i=>a("li",{},e(i)))):a("p",{class:"dim"},"No two heads are similar e\
nough to form a group."),o=U(`Groups of similar heads (${s.length})`,"group");return a("section",{class:"groups"},o,n,t.map(i=>a("p",{class:"dim"},i)))}var ts=class{constructor({
heads:t},e,n,o){this.names=n.map(r=>t[r]),this.measure=e,this.order=n,this.picked=o===void 0?-1:this.names.indexOf(o),this.side=fn,this.gutter=40,this.values=null;
let i="Similarity of every two heads; the lists beside it name the most similar.";this.canvas=a("canvas",{class:"pairs",role:"img","aria-label":i}),this.box=a("\
div",{class:"pairbox"},this.canvas),this.note=a("p",{class:"hover"},"Point at a cell for its two heads; click to see them side by side."),this.canvas.addEventListener(
"pointermove",r=>{let l=this.under(r);this.canvas.style.cursor=l?"pointer":"default",l&&this.describe(...l)}),this.canvas.addEventListener("click",r=>{let l=this.
under(r);if(!l)return;let[c,h]=l.map(u=>this.names[u]);location.hash=c===h?L(I.get(c)??0):gn(c,h)})}show(t){this.values=(e,n)=>t(this.order[e],this.order[n]),this.
draw(),this.picked>=0&&this.describe(this.picked,this.picked)}under(t){let[e,n]=ct(t,this.canvas),[o,i]=[Math.floor((e-this.gutter)/this.side),Math.floor((n-this.
gutter)/this.side)],r=this.order.length;return i>=0&&o>=0&&i<r&&o<r?[i,o]:null}describe(t,e){let{values:n,names:o,measure:i}=this;if(!n)return;if(t!==e){this.note.
textContent=`${o[t]} and ${o[e]}: ${$t(i)} ${k(n(t,e))}`;return}let r=ee(i)?1:-1,l=o.map((h,u)=>u).filter(h=>h!==t&&!Number.isNaN(n(t,h)));l.sort((h,u)=>r*(n(t,
h)-n(t,u)));let c=l.slice(0,3).map(h=>`${o[h]} ${k(n(t,h))}`);this.note.textContent=`Most similar to ${o[t]}: ${c.join(", ")}`}color(t){return Number.isNaN(t)?T(
"--line"):this.measure.low<0?ht("signed",(t+1)/2):ht("measure",ee(this.measure)?1-t:t)}legend(){let{low:t}=this.measure,e=Pt(l=>this.color(t+l*(1-t))),n=l=>a("s\
pan",{class:"dim"},l),o=t<0?["−1, opposite","1, the same"]:["0, unrelated","1, the same"],[i,r]=ee(this.measure)?["0, the same","1, nothing in common"]:o;return a(
"p",{class:"legend"},n(i),e,n(r))}draw(){let{values:t,names:e}=this;if(!t)return;let n=e.length,o=B(this.canvas,10,10);o.font=`10px ${D}`,this.gutter=ci+8+Math.
ceil(Math.max(32,...e.map(u=>o.measureText(u).width)));let i=Math.min(this.box.clientWidth||600,hi);this.side=Math.max(1,Math.min(fn,(i-this.gutter)/n));let{side:r,
gutter:l}=this;B(this.canvas,l+r*n,l+r*n);let c=r>12?r-1:r+.5;for(let u=0;u<n;u+=1)for(let p=0;p<n;p+=1)o.fillStyle=this.color(u===p?NaN:t(u,p)),o.fillRect(l+p*
r,l+u*r,c,c);o.font=`600 12px ${D}`,o.fillStyle=T("--ink"),o.textBaseline="middle",o.textAlign="center",o.fillText("head",l+r*n/2,7),rt(o,"head",7,l+r*n/2),o.font=
`10px ${D}`;let h=Math.max(1,Math.ceil(13/r));for(let u=0;u<n;u+=h)o.fillStyle=T(u===this.picked?"--ink":"--dim"),o.textAlign="right",o.fillText(e[u],l-4,l+(u+.5)*
r),o.textAlign="left",rt(o,e[u],l+(u+.5)*r,l-4);this.picked<0||(o.strokeStyle=T("--mark"),o.lineWidth=1.5,o.strokeRect(l,l+this.picked*r,r*n,r))}};var pi=["before","after"],mi="Point at a square to read its weight; click it to choose its row.",Se=class{constructor(t,e,n="trained model"){this.read=e,this.names=
{before:n,after:"with your switches"},this.title=a("h2",{}),this.said=a("p",{class:"cellnote"}),this.panes=pi.map(r=>{let l=new Ht({point:h=>this.say(r,h),pick:([
h])=>t(h),drawn:()=>{}}),c=a("h3",{},this.names[r]);return{which:r,view:l,name:c,box:a("div",{class:"pane"},c,l.box)}});let[o,i]=this.panes;this.box=a("section",
{class:"maps"},a("div",{class:"inputtop"},this.title,w("attention map")),a("div",{class:"panes"},o.box,i.box),this.said)}update(t,e,n,o){this.title.textContent=
`Where ${t} looks`;for(let{which:i,view:r,box:l}of this.panes){let c=n[i];l.hidden=!c,c&&(r.show(c),r.canvas.setAttribute("aria-label",`Attention map of ${t}, ${this.
names[i]}. ${o}`),r.mark={row:e,column:null},r.draw())}this.say("after",null)}say(t,e){this.said.textContent=e?this.read(t,e):mi}};var Me=["uniform","previous","first"];var kn=s=>Array.from({length:s},(t,e)=>s-e).filter(t=>s%t===0);var bn={uniform:"all words equally",previous:"previous word",first:"first word"},Te=class{constructor(t,e){this.layers=t,this.handlers=e,this.cells=t.map((i,r)=>i.
map((l,c)=>this.cell(l,r,c))),this.bars=t.map((i,r)=>this.bar(r,i.length)),this.pattern=a("select",{"aria-label":"where the chosen head looks"}),this.pattern.append(
a("option",{value:""},"as it was trained"),...Me.map(i=>a("option",{value:i},bn[i]))),this.pattern.addEventListener("change",()=>{let i=Me.find(r=>r===this.pattern.
value)??null;e.pattern?.(this.at[0],this.at[1],i)}),this.patternName=a("span",{});let n=a("div",{class:"choice detail"},a("label",{},this.patternName,this.pattern));
n.append(w("pattern by hand"));let o=t.map((i,r)=>{let l=a("div",{class:"switchrow"},...this.cells[r].map(({box:c})=>c));return l.style.setProperty("--heads",String(
i.length)),a("div",{class:"switchlayer"},this.bars[r].box,l)});this.box=a("div",{class:"switches"},...o,e.pattern?n:null),this.at=[0,0]}cell({name:t,kind:e,label:n},o,i){
let r=a("span",{class:"dot"});e&&(r.style.backgroundColor=qt(e));let l=a("button",{type:"button",class:"headname","data-head":t,onclick:()=>this.handlers.select(
o,i)},a("b",{},r,t),e?a("small",{},n??e):null),c=a("input",{type:"checkbox","aria-label":`${t} on`,"data-switch":t});c.addEventListener("change",()=>this.handlers.
scale(o,i,c.checked?1:0));let h=a("input",{type:"range",min:0,max:1,step:.05,"aria-label":`strength of ${t}`,"data-scale":t,oninput:()=>{u.textContent=k(Number(
h.value)),this.handlers.scale(o,i,Number(h.value))}}),u=a("span",{class:"strength"});return{box:a("div",{class:"switch"},a("div",{class:"switchtop"},l,c),h,u),choose:l,
on:c,slider:h,value:u}}bar(t,e){let n=a("input",{type:"checkbox","data-merge":t});n.addEventListener("change",()=>this.handlers.merge?.(t,n.checked));let o=a("s\
elect",{"data-share":t});for(let l of kn(e))o.append(a("option",{value:l},String(l)));o.addEventListener("change",()=>this.handlers.share?.(t,Number(o.value)));
let i=t===0;return{box:a("div",{class:"layerbar"},a("b",{},`Layer ${t}`),this.handlers.merge?a("span",{class:"toggle"},a("label",{},n,a("span",{},"one head")),i?
w("one head"):null):null,this.handlers.share?a("span",{class:"choice"},a("label",{},a("span",{},"keys/values"),o),i?w("keys/values"):null):null),merge:n,share:o}}update(t,e,n){
this.at=[e,n],this.cells.forEach((o,i)=>o.forEach(({box:r,choose:l,on:c,slider:h,value:u},p)=>{let{scale:m,pattern:f}=t[i].heads[p];c.checked=m>0,h.value=String(
m),u.textContent=f?bn[f]:k(m),r.classList.toggle("isoff",m===0),r.classList.toggle("changed",m!==1||f!==null),l.setAttribute("aria-pressed",String(i===e&&p===n))})),
this.bars.forEach(({merge:o,share:i},r)=>{o.checked=t[r].merged,i.value=String(t[r].kvHeads)}),this.pattern.value=t[e].heads[n].pattern??"",this.pattern.disabled=
t[e].merged,this.patternName.textContent=`${this.layers[e][n].name} looks`}};function yn(s,...t){let e=[...s.querySelectorAll("button")].findIndex(n=>n===document.activeElement);s.replaceChildren(...t),e>=0&&s.querySelectorAll("button")[e]?.
focus()}var fi=24;function vn(s,t,e="trained model"){return[...s.map(({word:o,before:i,after:r,actual:l})=>a("div",{class:l?"guess actual":"guess","data-word":o},a("spa\
n",{class:"guessed"},o,l?a("small",{}," (in the text)"):null),a("span",{class:"barpair"},Ae("before",i),t?Ae("after",r):null),a("span",{class:"chance"},xn(i),t?
a("b",{},xn(r)):null))),es(t,e)]}var es=(s,t)=>a("p",{class:"dim legendline"},a("span",{class:"swatch before"}),s?` ${t}`:` ${t}: no switch is changed`,s?a("spa\
n",{class:"swatch after"}):null,s?" with your switches":null);function $n(s,t,e,n){let o=e.slice(0,fi).map(({token:l,text:c})=>a("button",{type:"button",class:"\
suggestion",onclick:()=>n(l)},c)),i=e.length-o.length,r=i>0?a("span",{class:"dim"},` and ${i} more`):"";yn(s,a("p",{},t),...o,r)}var xn=s=>s<.001?"< 0.1 %":gt(
s,s<.01?1:2);function Ae(s,t){let e=a("span",{class:`bar ${s}`});return e.style.width=`${Math.max(.5,100*t)}%`,e}var wi=200;function gi(s){let t=new Map;for(let e of s.split(",")){let[n,o]=e.split(":"),[i,r]=[I.get(n),Number(o)];i!==void 0&&o&&r>=0&&r<1&&t.set(i,r)}return t}
var Ee=class{constructor(){this.scales=new Map,this.past=[]}restore(t){t!==void 0&&t!==this.text&&(this.scales=gi(t))}get text(){return[...this.scales].sort(([t],[
e])=>t-e).map(([t,e])=>`${d.heads[t]}:${Number(e.toFixed(2))}`).join(",")}get byName(){return Object.fromEntries([...this.scales].map(([t,e])=>[d.heads[t],e]))}get settings(){
let t=d.sites.map(({heads:e})=>({heads:[],merged:!1,kvHeads:e}));return x.forEach(({site:e},n)=>t[e].heads.push({scale:this.scales.get(n)??1,pattern:null})),t}set(t,e){
let n=new Map(this.scales);n.delete(t),e<1&&n.set(t,e),this.change(n)}reset(){this.scales.size&&this.change(new Map)}change(t){this.past.push(this.scales),this.
past.length>wi&&this.past.shift(),this.scales=t}undo(){this.scales=this.past.pop()??this.scales}};var ki=60,Sn=2048,bi=.999,ss="unchanged model",yi={next:"This model predicts the next token. The bars show the likeliest tokens after the chosen one.",masked:"T\
his model fills in hidden tokens. The chosen token is hidden from it, and the bars show what it takes it for. For the list, every other token is hidden in turn.",
vector:"This model predicts no words: it turns a text into a vector. The cosine compares the vector with your switches to that of the unchanged model: 1 is the \
same direction, 0 an unrelated one."},st=new Ee;function Mn(s){let t=new ns(s);return{element:t.element,start:()=>t.ask(),resize:()=>t.drawMaps(),stop:()=>t.stop()}}
var ns=class{constructor(t){st.restore(t.scale),this.text=Ft(t),this.sequence=d.texts[this.text].sequences[0],this.head=Kt(t)??0,this.token=Z(t.row,this.sequence.
shown.length)??this.lastWord(),this.abort=new AbortController,this.timer=0,this.answer=null,this.maps={before:null,after:null};let e=o=>this.choose(o);this.tokens=
new vt(this.sequence,{hover:()=>{},pick:e,label:"Tokens; choose one"}),this.pair=new Se(e,(o,i)=>this.read(o,i),ss),this.grid=d.heads.length>Sn?null:this.makeGrid();
let n=o=>()=>this.act(o);this.undo=a("button",{type:"button",id:"undo",onclick:n(()=>st.undo())},"Undo"),this.reset=a("button",{type:"button",id:"reset",onclick:n(
()=>st.reset())},"Reset"),this.title=a("h2",{}),this.meaning=a("p",{class:"dim"}),this.bars=a("div",{class:"predictions"}),this.list=a("div",{class:"changes"}),
this.fault=a("p",{class:"note",role:"alert"}),this.prediction=a("section",{class:"prediction","aria-label":"prediction","aria-busy":"true"},a("div",{class:"inpu\
ttop"},this.title),this.fault,this.meaning,this.bars,this.list),this.element=this.layout(),this.show()}layout(){let t=`The grid is for up to ${Sn} heads; this m\
odel has ${d.heads.length}.`,e=a("section",{class:"heads","aria-label":"heads"},a("div",{class:"inputtop"},a("h2",{},"Heads"),w("switch"),this.undo,this.reset),
this.grid?.box??a("p",{class:"dim"},t)),n="Switch a head off, or scale what it writes, and see what the model does without it. The model itself runs again after\
 every change.",o=a("div",{class:"controls"},zt(this.text));o.querySelector("details")?.setAttribute("open","");let i=a("div",{class:"switchview"},a("p",{class:"\
lead"},n),o,this.tokens.box);return i.append(a("div",{class:"two"},e,this.prediction),this.pair.box),i.addEventListener("keydown",r=>this.onKey(r)),i}makeGrid(){
let t=d.sites.map((e,n)=>Array.from({length:e.heads},(o,i)=>{let r=G[n]+i,l=A("kind")?{kind:N(r),label:J(r)}:{};return{name:d.heads[r],...l}}));return new Te(t,
{select:(e,n)=>this.act(()=>this.head=G[e]+n),scale:(e,n,o)=>this.act(()=>st.set(G[e]+n,o))})}lastWord(){let{special:t}=this.sequence,e=t.lastIndexOf(!1);return e<
0?t.length-1:e}choose(t){this.act(()=>this.token=t)}act(t){t(),this.show(),this.abort.abort(),this.prediction.setAttribute("aria-busy","true"),clearTimeout(this.
timer),this.timer=window.setTimeout(()=>this.ask(),ki)}stop(){clearTimeout(this.timer),this.abort.abort()}show(){let{site:t,head:e}=x[this.head];this.grid?.update(
st.settings,t,e),this.undo.disabled=!st.past.length,this.reset.disabled=!st.scales.size,this.tokens.paint(null,this.token)}async ask(){this.abort.abort(),this.abort=
new AbortController;let{signal:t}=this.abort,{head:e,token:n,text:o}=this;wt({...Ot(e),row:String(n),scale:st.text||void 0});let i=d.heads[e],r=st.scales.size>0,
l={text:d.texts[o].at??o,scales:st.byName,token:n};try{let c=await Is(r?{...l,head:i}:l,t),h=c.map===null?null:await re(c.map),u=await pt(o,e).catch(()=>null);if(t.
aborted)return;this.answer=c,this.maps={before:u,after:h&&ut.fromCodes(i,this.sequence,h)},this.fault.textContent=""}catch(c){if(Xt(c)||t.aborted)return;this.answer=
null,this.maps={before:null,after:null},this.fault.textContent=c instanceof Error?c.message:String(c)}this.draw(r),this.prediction.setAttribute("aria-busy","fal\
se")}draw(t){let{answer:e}=this;this.bars.replaceChildren(),this.list.replaceChildren(),this.meaning.textContent=e?yi[e.reading]:"",this.title.textContent=e?this.
heading(e):"No prediction",e?.top&&this.drawTop(e,t),e?.cosine!==void 0&&this.drawCosine(e.cosine,t);let n=e&&t?this.changes(e):[];if(e&&t){let i=this.changeTitle(
e,n.length);$n(this.list,i,n,r=>this.choose(r)),ot(i)}let o=new Set(n.map(({token:i})=>i));this.tokens.spans.forEach((i,r)=>i.classList.toggle("switched",o.has(
this.tokens.from+r))),this.drawMaps()}heading({reading:t}){let e=`“${this.word(this.token)}”`;return t==="vector"?"The vector of the text":t==="next"?`Next \
token after ${e}`:`In place of ${e}`}drawTop({top:t=[],actual:e},n){let o=t.map(({id:i,word:r,before:l,after:c})=>({word:M(r,16),before:l,after:c,actual:i===e}));
this.bars.replaceChildren(...vn(o,n,ss))}drawCosine(t,e){let n=(i,r)=>a("div",{class:"guess"},a("span",{class:"guessed"},"cosine"),a("span",{class:"barpair"},Ae(
i,Math.max(0,r))),a("span",{class:"chance"},a("b",{"data-cosine":i},k(r)))),o=e?[n("before",1),n("after",t)]:[n("before",1)];this.bars.replaceChildren(...o,es(e,
ss))}changes({changed:t,cosines:e}){let n=o=>M(this.word(o),20);if(t){let o=(i,r)=>`${M(i,20)} → ${M(r,20)}`;return t.map(({token:i,before:r,after:l})=>({token:i,
text:`${n(i)}: ${o(r,l)}`}))}return(e??[]).map((o,i)=>({token:i,cosine:o,text:`${n(i)} ${k(o)}`})).filter(({cosine:o})=>o<bi).sort((o,i)=>o.cosine-i.cosine)}changeTitle({
reading:t,shown:e,cosines:n},o){let i=`${o} of ${Y(e.length,"token")}`;return t==="vector"?n?o?`The vectors of ${i} turned; the cosine of each:`:"No token's vec\
tor turned.":"This model returns one vector for the whole text.":o?t==="next"?`The likeliest next token changed after ${i}:`:`Another token fills ${i}:`:"The li\
keliest token is the same everywhere."}drawMaps(){if(this.pair.box.hidden=!this.maps.before,!this.maps.before)return;this.pair.update(d.heads[this.head],this.token,
this.maps,"The view of this head has the same weights.")}read(t,e){let n=this.maps[t]?.row(e[0])[e[1]],[o,i]=e.map(r=>`“${M(this.word(r),24)}”`);return`${o}\
 looks at ${i} with weight ${k(n)}`}word(t){return this.sequence.shown[t]}onKey(t){t.key.toLowerCase()!=="z"||!(t.ctrlKey||t.metaKey)||t.shiftKey||t.target instanceof
HTMLTextAreaElement||(t.preventDefault(),this.act(()=>st.undo()))}};var Tn={holds:"✓ holds",fails:"✗ fails","holds only if":"~ conditional"},An=s=>Object.hasOwn(Tn,s)?Tn[s]:s;function En(){let{about:s,statements:t}=d.theory,
e=["#","statement","verdict","as computed","as stated"].map(c=>{let h=c==="#"?null:[" ",w(c)];return a("th",{scope:"col"},c,h)}),n=a("tbody",{},t.map(vi)),o=a("\
table",{class:"theory"},a("thead",{},a("tr",{},e)),n),i=`Statements about multi-head attention from papers and textbooks. Both sides were computed on this model\
: ${xi(t)}. Click a statement for its formula and the result of each layer.`,r={class:"scroll wide",tabindex:"0",role:"region","aria-label":"Statements and verd\
icts"},l=[a("p",{class:"lead"},i),a("p",{class:"dim"},s)];return{element:a("div",{},l,a("div",r,o))}}function xi(s){let t=new Map;for(let{verdict:e}of s)t.set(e,
(t.get(e)??0)+1);return[...t].map(([e,n])=>e==="holds only if"?`${n} ${n===1?"holds":"hold"} under a condition`:e==="holds"||e==="fails"?`${n} ${n===1?e:e.slice(
0,-1)}`:`${n} ${n===1?"has":"have"} ${e}`).join(", ")}function vi(s){let{id:t,title:e,formula:n,verdict:o,tally:i}=s,r=Object.entries(s.layers),[l,c]=r.find(([,
f])=>f.verdict===o)??r[0],h=s.holds_when.replace(/\.$/,""),u=r.map(([f,v])=>a("tr",{},a("th",{scope:"row"},f),a("td",{},An(v.verdict)),a("td",{},v.lhs),a("td",{},
v.rhs))),p=a("details",{},a("summary",{},e),a("code",{},n),a("p",{},c.because));h&&p.append(a("p",{class:"dim"},`True when ${h}.`)),p.append(a("table",{class:"l\
ayers"},a("tbody",{},u)));let m=i.replace(/^(holds|fails|conditional)/,f=>An(f==="conditional"?"holds only if":f));return a("tr",{class:`verdict ${o.replaceAll(
" ","-")}`,"data-key":t},a("th",{scope:"row"},t),a("td",{class:"statement"},p),a("td",{class:"result"},m),a("td",{title:l},c.lhs),a("td",{},c.rhs))}var On=1024;function Ln(s){let t=new os(s,Ft(s)),e=l=>S({hide:l?"1":void 0}),n=Ut("hide delimiters",t.hide,e,w("hide delimiters")),o=a("div",{class:"controls"},
zt(t.text),sn(t.looks),n),r=a("div",{class:"tokensview"},a("p",{class:"lead"},"Click a token of the text. Each box is a head and shows the token with the larges\
t weight: the darker the box, the larger the weight. Click a box to open its head."),o);return r.append(t.tokens.box,t.spoken,$i(),t.table),{element:r,start:()=>t.
choose(t.token),stop:()=>t.stop()}}var os=class{constructor(t,e){this.text=e,this.looks=t.dir!==Bt,this.hide=t.hide==="1",this.live=!0,this.turn=0,this.sequence=
d.texts[e].sequences[0];let n=this.sequence.special.findIndex((i,r)=>!i&&r>0);this.token=Z(t.row,this.sequence.shown.length)??Math.max(0,n);let o=i=>{wt({row:String(
i)}),this.choose(i)};this.tokens=new vt(this.sequence,{hover:()=>{},pick:o,label:"Tokens of the text"}),this.spoken=a("p",{class:"said",role:"status"}),this.boxes=
[],this.table=d.heads.length>On?Si():this.makeTable()}makeTable(){let t=1+Math.max(...x.map(l=>l.number)),e=Array.from({length:t},(l,c)=>a("th",{scope:"col"},String(
c))),n=a("td",{class:"corner"},"layer ↓ head →"),o=d.sites.map((l,c)=>{let h=Array.from({length:t},()=>a("td"));for(let u=G[c];u<G[c]+l.heads;u+=1){let p=a(
"a",{href:L(u),"aria-label":d.heads[u]});this.boxes.push(p),h[x[u].number].append(p)}return a("tr",{},a("th",{scope:"row"},l.label),h)}),i=a("table",{class:"tie\
s"},a("thead",{},a("tr",{},n,e)),a("tbody",{},o));return a("div",{class:"scroll wide",tabindex:"0",role:"region","aria-label":"The token with the largest weight\
, for every head"},i)}stop(){this.live=!1}async choose(t){this.token=t,this.turn+=1;let{turn:e,looks:n}=this,o=`“${M(this.sequence.shown[t],40)}”, token ${t}\
.`,i=new Float32Array(this.sequence.shown.length),r=0;this.tokens.paint(null,t);for(let c=0;c<this.boxes.length;c+=1){let h=await It(this.text,c).catch(()=>null);
if(!this.live||e!==this.turn)return;let[u,p]=h?n?[h.rows,h.columns]:[h.columns,h.rows]:[null,null];if(!h||!p||u!==this.sequence)continue;if(h instanceof j&&!n){
this.spoken.textContent=`${o} On a text this long, open a head to see who looks at a token.`;return}n||await h.complete();let m=await xt(h.reweighted(!1,this.hide),
n,t).catch(()=>null);if(!m||!this.live||e!==this.turn)return;if(this.showBox(c,m,p),r+=1,p===this.sequence)for(let f=0;f<i.length;f+=1)i[f]+=m[f]}this.tokens.paint(
i.map(c=>c/Math.max(1,r)),t);let l=n?"where it looks":"who looks at it";this.spoken.textContent=`${o} Shaded: ${l}, the mean over all heads.`}showBox(t,e,n){let o=0;
for(let l=1;l<e.length;l+=1)e[l]>e[o]&&(o=l);let i=this.boxes[t],r=Cn(e[o]);i.textContent=M(n.shown[o],7),i.href=F({view:void 0,...Ot(t),row:String(this.token)}),
i.title=`${d.heads[t]}: ${M(n.shown[o],60)} ${k(e[o])}`,i.setAttribute("aria-label",i.title),i.style.backgroundColor=qn(r),i.classList.toggle("strong",r>55)}},Cn=s=>Math.
round(78*s**b.weight_exponent),qn=s=>`color-mix(in srgb, var(--shade) ${s}%, transparent)`;function $i(){let s=[.01,.1,.25,.5,1].map(e=>{let n=a("span",{},String(
e));return n.style.backgroundColor=qn(Cn(e)),n});return a("p",{class:"shading"},a("span",{class:"steps"},s)," ","largest weight of the head, square-root scale ",
w("shading"))}var Si=()=>a("p",{class:"dim"},`This view is for up to ${On} heads; this model has ${d.heads.length}.`);var Oe=[{key:"heads",title:"Heads",make:dn,has:()=>!0},{key:"tokens",title:"Tokens",make:Ln,has:()=>d.texts.length>0},{key:"switches",title:"Switches",make:Mn,has:()=>d.
served&&d.texts.some(Boolean)},{key:"similarity",title:"Similarity",make:wn,has:()=>d.pairs!==null},{key:"pruning",title:"Pruning",make:pn,has:()=>d.curve!==null||
d.cost!==null},{key:"theory",title:"Theory",make:En,has:()=>d.theory!==null}],Mt=null,is=0;function Mi(s,t){let e=Oe.find(n=>n.key===s.view&&n.has());return e||
(t===null?Oe[0]:null)}async function Le(){let s=performance.now();is+=1;let t=is,e=he(),n=Kt(e),o=Mi(e,n),i=!o&&n!==null?Mt?.moveTo?.(e,n):null,r=o?.key??"head";
i||(Mt?.stop?.(),Mt=o||n===null?(o??Oe[0]).make(e):en(e,n),P("main").replaceChildren(Mt.element));for(let l of P("views").querySelectorAll("a"))l.dataset.view===
(o?.key??"heads")?l.setAttribute("aria-current","page"):l.removeAttribute("aria-current");document.body.dataset.view=r,await(i??Mt?.start?.()),t===is&&(!o&&n!==
null&&ot(ge(n)),document.body.dataset.ready=`${r} ${location.hash}`,document.body.dataset.took=(performance.now()-s).toFixed(1))}var Ti="This page is incomplete\
: the run was stopped before everything was measured.";function Ai(){let{notes:s,model:t,version:e,made:n}=d,o=d.stopped?[Ti]:[];P("card").replaceChildren(...Ei()),
P("findings").replaceChildren(...o.map(h=>a("p",{class:"finding note"},h)),...Oi());let i=()=>document.documentElement.dataset.theme==="dark"?"light":"dark";P("\
tools").replaceChildren(a("button",{type:"button",id:"theme",onclick:()=>rs(i())},"Light / dark"),a("button",{type:"button",onclick:()=>window.print()},"Print"));
let l=Oe.filter(h=>h.has()).map(({key:h,title:u})=>a("a",{href:`#view=${h}`,"data-view":h},u));P("views").replaceChildren(...l),P("foot").replaceChildren(...[...o,
...s].map(h=>a("p",{class:"note"},h)),a("p",{},`multihead ${e}, ${n}. ${t.class}. On a head, arrow keys move to other heads and layers, and Esc leads back to al\
l heads. The URL saves this view.`))}function Ei(){let{model:s,corpus:t,sites:e,heads:n}=d,o=e.reduce((p,m)=>p+m.kv,0),i=new Set(e.map(p=>p.heads)),r=[...i][0],
l=i.size===1?`${Y(e.length,"layer")} × ${Y(r,"head")}`:`${n.length} heads in ${Y(e.length,"layer")}`,c=Y(t.documents,"document"),h=t.tokens?`${t.tokens.toLocaleString(
"en")} tokens in ${c}`:c;return[[Gt(s.parameters),"parameters","parameters"],[l,"","head"],[String(o),o===n.length?"kv heads, one each":"kv heads","kv heads"],[
h,t.name?`of ${M(t.name,60)}`:"","token"]].map(([p,m,f])=>a("span",{},a("b",{},p),` ${m} `,w(f)))}var Nn={heads:"Show heads →",similarity:"Show similarity →",
pruning:"Show pruning →",theory:"Show theory →"};function Oi(){return d.findings.map(({text:s,link:t})=>{let e=new URLSearchParams(t.slice(1)).get("view")??
"",n=Object.hasOwn(Nn,e)?Nn[e]:"Show head →",o=a("span",{},Li(s.replace(/(\d) %/g,"$1 %"))),i=a("a",{class:"arrow",href:t,onclick:()=>P("views").scrollIntoView()},
n);return a("div",{class:"finding"},o,i)})}function Li(s){return s.split(/([\w.]*L\d+H\d+)/).map(t=>{let e=I.get(t);return e===void 0?t:a("a",{href:L(e)},t)})}function rs(s){
document.documentElement.dataset.theme=s,Ts(),Mt?.stop?.(),Mt=null,d&&Le()}function Ci(s){if(ie(s,"input, select, textarea, .tokens, canvas.grid, [contenteditab\
le]")||s.altKey||s.ctrlKey||s.metaKey||s.shiftKey)return;let t=Kt(he());if(document.body.dataset.view!=="head"||t===null)return;s.key==="Escape"&&S(de);let e=ce[s.
key];e&&(s.preventDefault(),history.replaceState(null,"",L(Et(t,e))),Le())}async function qi(){let s=window.matchMedia("(prefers-color-scheme: dark)");if(rs(s.matches?
"dark":"light"),s.addEventListener("change",()=>rs(s.matches?"dark":"light")),typeof DecompressionStream>"u"){P("main").append(a("p",{class:"lead"},"This browse\
r is too old for this page. Use Chrome 111, Safari 16.4, Firefox 113 or a newer one."));return}await ps(),Ai(),Le(),window.addEventListener("hashchange",()=>location.
hash!=="#main"&&Le()),window.addEventListener("keydown",Ci);let t=0;window.addEventListener("resize",()=>{clearTimeout(t),t=window.setTimeout(()=>Mt?.resize?.(),
80)})}async function Ni(s,t=0,{norm:e=!1,hide:n=!1}={}){let o=await pt(t,I.get(s)??-1);if(!o||o instanceof j)return null;let i=o.reweighted(e,n);return Array.from(
{length:o.queries},(r,l)=>Array.from(i.row(l)))}async function Ii(s,t,e=0,{norm:n=!1,hide:o=!1,looks:i=!0}={}){let l=await(i?It:pt)(e,I.get(s)??-1);return l&&Array.
from(await xt(l.reweighted(n,o),i,t))}Object.defineProperty(window,"multihead",{value:Object.freeze({weights:Ni,row:Ii,get data(){return d}})});qi();})();
