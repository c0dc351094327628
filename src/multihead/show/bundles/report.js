"use strict";(()=>{function R(s){let t=document.getElementById(s);if(!t)throw new Error(`the page has no element #${s}`);return t}function a(s,t={},...e){let n=document.createElement(
s);for(let[o,i]of Object.entries(t))i==null||i===!1||(typeof i=="function"?n.addEventListener(o.slice(2),i):n.setAttribute(o,i===!0?"":String(i)));return as(n,e),
n}function as(s,t){for(let e of t)Array.isArray(e)?as(s,e):e!=null&&s.append(e)}function _(s,t={},...e){let n=document.createElementNS("http://www.w3.org/2000/s\
vg",s);for(let[o,i]of Object.entries(t))n.setAttribute(o,String(i));return n.append(...e),n}function X(s,t,e,n,o){let i=a("select",{onchange:()=>n(i.value)});for(let[
r,l]of t){let c=a("option",{value:r},l);c.selected=r===e,i.append(c)}return a("div",{class:"choice"},a("label",{},a("span",{},s),i),o)}function Bt(s,t,e,n){let o=a(
"input",{type:"checkbox",onchange:()=>e(o.checked)});return o.checked=t,a("div",{class:"toggle"},a("label",{},o,a("span",{},s)),n)}function nt(s){R("live").textContent=
s}function se(){return new Promise(s=>{"requestIdleCallback"in window?requestIdleCallback(s,{timeout:500}):setTimeout(s,100)})}function ne(s,t){let e=a("a",{href:URL.
createObjectURL(s),download:t});e.click(),setTimeout(()=>URL.revokeObjectURL(e.href),1e4)}function lt(s,t){let e=t.getBoundingClientRect();return[s.clientX-e.left,
s.clientY-e.top]}function oe(s,t){return s.target instanceof Element?s.target.closest(t):null}var ls=null,cs=Uint8Array;async function ie(s){let t=cs.fromBase64?cs.fromBase64(s):Uint8Array.from(atob(s),n=>n.charCodeAt(0)),e=new Response(t).body;return new Uint8Array(
await new Response(e.pipeThrough(new DecompressionStream("deflate-raw"))).arrayBuffer())}async function hs(){let s=R("data"),t=JSON.parse(new TextDecoder().decode(
await ie(s.textContent??"")));return s.remove(),t}function Mt(s){return ls??=(R("lines").textContent??"").split(`
`),ie(ls[s])}var pt=s=>new Float32Array(s.buffer,s.byteOffset,s.byteLength/4),Le=s=>new Uint32Array(s.buffer,s.byteOffset,s.byteLength/4),Pn=Float64Array.from({
length:32},(s,t)=>2**((t||1)-25));function ds(s){let t=s.length/2,e=new Float32Array(t);for(let n=0;n<t;n+=1){let o=s[n]<<8|s[t+n],i=o>>10&31,r=((i?1024:0)+(o&1023))*
Pn[i];e[n]=o&32768?-r:r}return e}var y;function us(s){y=s}var d,v=[],I=new Map,K=[],ot=new Set;async function ps(){d=await hs(),us(d.charts),d.served&&(d.texts=_n(d.texts)),I=new Map(d.heads.map((s,t)=>[s,t])),v=[],K=[],
d.sites.forEach((s,t)=>{K.push(v.length);for(let e=0;e<s.heads;e+=1)v.push({site:t,head:e,number:jn(d.heads[v.length])})}),ot=Fn()}function _n(s){let t=[];for(let e of s)
t[e.at??0]=e;return t}var jn=s=>Number(/H(\d+)$/.exec(s)?.[1]??0),Ut=s=>s.replace(/H\d+$/,"");function Fn(){let s=d.curve,t=s?.curves[0];if(!s||!t)return new Set(
[]);let e=t.points.find(n=>n.gone===s.prunable);return new Set(e?.heads??t.order.slice(0,s.prunable))}function T(s){return s&&d.table&&Object.hasOwn(d.table,s)?
d.table[s]:null}var Tt=(s,t)=>T(s)?.values[t]??null;function A(s,t){let e=Tt(s,t);return typeof e=="number"?e:null}function F(s,t){let e=Tt(s,t);return typeof e==
"string"?e:""}var re=s=>d.heads.map((t,e)=>A(s,e)),ms=()=>Object.keys(d.table??{}).filter(s=>T(s)?.values.some(t=>typeof t=="number"));function fs(s,t){let e=T(
s)?.why??{};return Object.keys(e).find(n=>e[n].includes(d.heads[t]))??""}var q=s=>F("kind",s),ws=s=>[q(s),F("kind_detail",s)].filter(Boolean).join(" "),mt=s=>A(
d.importance,s);function ae(s){let t=d.importance?A(`${d.importance}_error`,s):null;return t===null?null:1.96*t}function At(s,[t,e]){let n=v[s],o=d.sites.length,
i=(n.site+t+o)%o,r=d.sites[i].heads,l=t?Math.min(n.head,r-1):(n.head+e+r)%r;return K[i]+l}var le={ArrowLeft:[0,-1],ArrowRight:[0,1],ArrowUp:[-1,0],ArrowDown:[1,
0]};var ce=()=>Object.fromEntries(new URLSearchParams(location.hash.slice(1)));function Z(s,t){let e=Number(s);return s!==void 0&&s!==""&&Number.isInteger(e)&&e>=0&&
e<t?e:null}function H(s){return`#${Object.entries({...ce(),...s}).filter(([,e])=>e!==void 0&&e!=="").map(([e,n])=>`${e}=${encodeURIComponent(String(n))}`).join(
"&")}`}function $(s){location.hash=H(s)}function ft(s){history.replaceState(null,"",H(s))}function Et(s){let{site:t,number:e}=v[s],{stack:n,layer:o}=d.sites[t];
return{stack:n||void 0,layer:String(o),head:String(e)}}var O=s=>H({view:void 0,kind:void 0,share:void 0,pick:void 0,second:void 0,...Et(s)}),he={view:"heads",layer:void 0,
head:void 0,second:void 0,row:void 0};function Vt(s){if(s.layer===void 0||s.head===void 0)return null;let t=v.findIndex(({site:e,number:n})=>{let{layer:o,stack:i}=d.
sites[e];return String(o)===s.layer&&(i||"")===(s.stack||"")&&String(n)===s.head});return t<0?null:t}var gs=s=>s==null||Number.isNaN(s);function L(s,t=y.format.digits){let{missing:e,plain:n}=y.format;if(gs(s))return e;let o=Math.abs(s);return Number.isInteger(s)&&
o<n[1]?String(s):o>=n[1]||o<n[0]?s.toExponential(1).replace("e+","e").replace(".0e","e"):String(Number(s.toPrecision(t)))}function k(s){let{missing:t,fraction_digits:e}=y.
format;return gs(s)?t:s.toFixed(e)}var wt=(s,t=2)=>`${L(100*s,t)} %`;function Kt(s){let t=Math.max(0,Math.min(3,Math.floor(Math.log10(Math.max(1,s))/3)));return`${Number(
(s/1e3**t).toPrecision(3))}${[""," k"," M"," G"][t]}`}function S(s,t=24){let e=Array.from(s);return e.length<=t?s:`${e.slice(0,t-1).join("")}…`}var W=s=>s?`${s[0].
toUpperCase()}${s.slice(1)}${/[.!?]$/.test(s)?"":"."}`:"",G=(s,t)=>`${s} ${t}${s===1?"":"s"}`;var Hn=15,z="system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif",Nt=()=>window.devicePixelRatio||1;function Gt(s){let t=s.getContext("2d");if(!t)throw new Error(
"this browser draws no canvas");return t}function D(s,t,e){let n=Nt(),[o,i]=[Math.max(1,Math.round(t*n)),Math.max(1,Math.round(e*n))],r=Gt(s);return s.width===o&&
s.height===i&&s.style.width&&"reset"in r?r.reset():(s.width=o,s.height=i,s.style.width=`${t}px`,s.style.height=`${e}px`),r.setTransform(n,0,0,n,0,0),r}function Rt(s,t=160){
let e=a("canvas",{class:"bar","aria-hidden":"true"}),n=D(e,t,10);for(let o=0;o<t;o+=1)n.fillStyle=s(o/(t-1)),n.fillRect(o,0,1,10);return e}function it(s,t,e,n){
s.save(),s.translate(e,n),s.rotate(-Math.PI/2),s.fillText(t,0,0),s.restore()}var bs=()=>parseFloat(getComputedStyle(document.documentElement).fontSize)/Hn;var ks=s=>Object.hasOwn(d.kind_texts,s)?d.kind_texts[s]:null,Y=s=>ks(s)?.label??s,de=s=>ks(s)?.sentence??"";var qe=20,ys=.4,ue=2*Math.PI;function xs(s,{color:t,size:e=.6,hollow:n},o,i,r){let[l,c]=y.size,h=Math.max(1.2,r/2*(l+(c-l)*e));s.beginPath(),s.arc(o+r/2,i+r/2,h,
0,ue),s.lineWidth=Math.max(1,Math.min(2.5,r/12)),s.strokeStyle=s.fillStyle=t,n?s.stroke():s.fill()}function Wn(s,{color:t},e,n,o){let i=vs(o);s.fillStyle=t,s.fillRect(
e+i,n+i,o-2*i,o-2*i)}function zn(s,t,e,n,o){t.parts?o<qe?Bn(s,t,e,n,o):Dn(s,t,e,n,o):xs(s,{...t,size:.2},e,n,o)}function Dn(s,{parts:t=[],leading:e=[],size:n=1,
hollow:o},i,r,l){let{size:[c,h],hole:u,centre:p}=y.ring,f=l/2*(c+(h-c)*n),[m,b]=[i+l/2,r+l/2],x=(j,st,V)=>{s.beginPath(),s.arc(m,b,j,ue*(st-.25),ue*(V-.25))},C=f*
(1-u),E=.6/(ue*(f-C/2)),g=0;s.lineWidth=C,t.forEach((j,st)=>{let V=g+j,at=j>3*E&&j<1?E:0;s.strokeStyle=y.shares[st].colour,x(f-C/2,g+at,V-at),j>0&&s.stroke(),g=
V}),s.lineWidth=Math.max(1.2,f/9);let N=f*p-(o?s.lineWidth/2:0);e.forEach(({colour:j},st)=>{s.strokeStyle=s.fillStyle=j;let[V,at]=[.5+st/e.length,.5+(st+1)/e.length];
x(N,V,at),o?s.stroke():s.fill()})}function Bn(s,{parts:t=[],leading:e=[],hollow:n},o,i,r){let l=vs(r),c=r-2*l,h=Math.max(1,r/8),u=y.shares.map(({name:m})=>m),p=e.
reduce((m,{name:b})=>m+t[u.indexOf(b)],0),f=s.globalAlpha;s.globalAlpha=f*(ys+(1-ys)*Math.sqrt(Math.max(0,Math.min(1,p)))),s.lineWidth=h,e.forEach(({colour:m},b)=>{
let x=c/e.length,[C,E]=[o+l+b*x,i+l];s.strokeStyle=s.fillStyle=m,n?s.strokeRect(C+h/2,E+h/2,x-h,c-h):s.fillRect(C,E,x,c)}),s.globalAlpha=f}var vs=s=>s>12?1.5:.5,
$s={dot:xs,square:Wn,shares:zn};var Ot=s=>s.split(",")[0];function tt(s){let t=Ot(s).split(" + ");return y.shares.filter(({name:e})=>t.includes(e))}var Lt=256;function Ct(s){let{kinds:t,no_value:e}=y;return Object.hasOwn(t,s)?t[s]:tt(s)[0]?.colour??e}function me(s){let[t,e]=tt(s);return e?`linear-gradient(9\
0deg, ${t.colour} 50%, ${e.colour} 50%)`:Ct(s)}var Ne=s=>y.lines[s%y.lines.length],Un=s=>[1,3,5].map(t=>parseInt(s.slice(t,t+2),16));function Vn(s){let t=s.map(
Un),e=new Uint8Array(3*Lt);for(let n=0;n<Lt;n+=1){let o=n/(Lt-1)*(t.length-1),i=Math.min(t.length-2,Math.floor(o));for(let r=0;r<3;r+=1)e[3*n+r]=Math.round(t[i][r]+
(o-i)*(t[i+1][r]-t[i][r]))}return e}var Ss=new Map;function Ms(s){let t=Ss.get(s);return t||(t=Vn(y.ramps[s]),Ss.set(s,t)),t}var Re=()=>document.documentElement.
dataset.theme==="dark"?"weight-dark":"weight";function ct(s,t){let e=Ms(s),n=3*Math.max(0,Math.min(Lt-1,Math.round(t*(Lt-1))));return`rgb(${e[n]} ${e[n+1]} ${e[n+2]})`}var Ie=new Map,pe=null;function M(s){let t=Ie.
get(s);return t===void 0&&(t=getComputedStyle(document.documentElement).getPropertyValue(s).trim(),Ie.set(s,t)),t}function Ts(){if(!pe){let s=Ms(Re()),t=new Uint8Array(
4*Lt).fill(255);for(let e=0;e<Lt;e+=1)t.set(s.subarray(3*e,3*e+3),4*e);pe=new Uint32Array(t.buffer)}return pe}function As(){pe=null,Ie.clear()}function ht(s){if(!F("leading",s))return null;let t=y.shares.map(({name:e})=>A(e,s));return t.includes(null)?null:t}var Yt=()=>d.heads.some((s,t)=>ht(t)!==null),
et=s=>tt(F("leading",s));function Es(s){let t=et(s).map(({one:e})=>e);return t.length?`This head ${t.join("; it also ")}.`:""}var gt=62,Pt=40,Os=46,Kn=5;function Gn(s,t){if(s==="shares"||s==="kind"){let r=d.heads.map((h,u)=>mt(u)),[,l]=Ls(r),c=s==="shares"?1:.6;return h=>({shape:s==="s\
hares"?"shares":"dot",color:Ct(q(h)),size:l>0?Math.sqrt(Math.max(r[h]??0,0)/l):c,hollow:ot.has(d.heads[h]),faded:!t(h),parts:ht(h)??void 0,leading:et(h)})}let e=re(
s),{ramp:n,low:o,high:i}=Pe(e);return r=>{let l=e[r];return{shape:"square",color:l===null?M("--line"):ct(n,i>o?(l-o)/(i-o):.5)}}}function Pe(s){let[t,e]=Ls(s),n=Math.
max(-t,e);return t<0&&e>0?{ramp:"signed",low:-n,high:n}:{ramp:"measure",low:t,high:e}}function Ls(s){let[t,e]=[1/0,-1/0];for(let n of s)n!==null&&n<t&&(t=n),n!==
null&&n>e&&(e=n);return[t,e]}var fe=class{constructor(t,e){this.by=t,this.chosen=e,this.columns=1+Math.max(...v.map(n=>n.number)),this.headAt=new Map(v.map(({site:n,
number:o},i)=>[`${n} ${o}`,i])),this.side=Os,this.picked=0,this.hovered=null,this.canvas=a("canvas",{tabindex:"0",role:"application",class:"grid","aria-label":"\
Grid of heads, layers down, heads across. Arrow keys move, Enter opens the head."}),this.note=a("p",{class:"hover","aria-hidden":"true"}),this.box=a("div",{class:"\
gridbox"},this.canvas),this.canvas.addEventListener("pointermove",n=>this.hover(this.under(n))),this.canvas.addEventListener("pointerleave",()=>this.hover(null)),
this.canvas.addEventListener("click",n=>{let o=this.under(n);o!==null&&(location.hash=O(o))}),this.canvas.addEventListener("keydown",n=>this.onKey(n)),this.canvas.
addEventListener("focus",()=>this.draw()),this.canvas.addEventListener("blur",()=>this.draw()),this.describe(null)}under(t){let[e,n]=lt(t,this.canvas),[o,i]=[Math.
floor((n-Pt)/this.side),Math.floor((e-gt)/this.side)];return this.headAt.get(`${o} ${i}`)??null}hover(t){t!==this.hovered&&(this.hovered=t,this.canvas.style.cursor=
t===null?"default":"pointer",this.draw(),this.describe(t))}describe(t){let e="Point at a head for its numbers; click to open it.";this.note.textContent=t===null?
e:we(t,this.by)}onKey(t){t.key==="Enter"&&(location.hash=O(this.picked));let e=le[t.key];e&&(t.preventDefault(),t.stopPropagation(),this.picked=At(this.picked,e),
this.draw(),this.describe(this.picked),nt(we(this.picked,this.by)))}draw(){let t=d.sites.length,e=((this.box.clientWidth||600)-gt)/this.columns;this.side=Math.max(
Kn,Math.min(Os,e>12?Math.floor(e):e)),this.box.parentElement&&(this.box.parentElement.dataset.mark=this.side<qe?"tile":"ring");let[n,o]=[this.side*this.columns,
this.side*t],i=D(this.canvas,gt+n,Pt+o+2);this.drawAxes(i,n,o);let r=Gn(this.by,this.chosen),l=document.activeElement===this.canvas?this.picked:null;v.forEach(({
site:c,number:h},u)=>{let[p,f]=[gt+h*this.side,Pt+c*this.side],m=r(u);i.globalAlpha=m.faded?.16:1,$s[m.shape](i,m,p,f,this.side),i.globalAlpha=1,!(u!==this.hovered&&
u!==l)&&(i.strokeStyle=M("--ink"),i.lineWidth=1.5,i.strokeRect(p+.75,f+.75,this.side-1.5,this.side-1.5))})}drawAxes(t,e,n){t.font=`600 12px ${z}`,t.fillStyle=M(
"--ink"),t.textBaseline="middle",t.textAlign="center",t.fillText("head",gt+Math.min(e,this.box.clientWidth-gt)/2,8),it(t,"layer",8,Pt+n/2),t.font=`11px ${z}`,t.
fillStyle=M("--dim");let o=Math.max(1,Math.ceil(18/this.side));for(let r=0;r<this.columns;r+=o)t.fillText(String(r),gt+(r+.5)*this.side,Pt-11);t.textAlign="righ\
t";let i=d.sites.length>40||this.side<14;d.sites.forEach(({label:r,layer:l},c)=>{if(c%o)return;let h=i?String(l):r.replace(/^(enc|dec)oder\./,"$1.");t.fillText(
h,gt-8,Pt+(c+.5)*this.side)})}};function we(s,t){let e=[d.heads[s]];if(T("kind")){let r=A("kind_score",s),l=Ot(q(s))===q(s);e.push(`${Q(s)}${r===null||!l?"":` ${k(
r)}`}`)}let n=ht(s);n&&e.push(y.shares.map(({name:r},l)=>`${r} ${k(n[l])}`).join(", ")),d.importance&&e.push(`importance ${L(mt(s),2)}`);let o=F("most_similar",
s);o&&e.push(`most similar ${o} ${k(A("most_similar_cka",s))}`);let i=t==="kind"||t==="shares"||t===d.importance?null:T(t);return t&&i&&e.push(`${t} ${L(A(t,s))}`),
ot.has(d.heads[s])&&e.push("can be pruned"),e.join(" · ")}var Q=s=>[Y(q(s)),F("kind_detail",s)].filter(Boolean).join(" "),Cs=s=>de(q(s))||Es(s);var U={head:"A head looks at every token of a text and mixes some of them into each token. A layer has several heads, each with its own weights. L3H7 is head 7 \
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
l."};var bt=a("div",{id:"definition",role:"note",hidden:!0}),kt=null;function Qt(){kt?.setAttribute("aria-expanded","false"),kt=null,bt.hidden=!0}function Yn(s,t,e){
Qt(),kt=s,s.setAttribute("aria-expanded","true"),bt.replaceChildren(a("b",{},t),a("p",{},e)),document.body.append(bt),bt.hidden=!1;let n=s.getBoundingClientRect(),
{width:o,height:i}=bt.getBoundingClientRect(),r=Math.max(8,Math.min(n.left-12,document.documentElement.clientWidth-o-8)),l=n.bottom+6+i<=window.innerHeight||n.top<
i+6;bt.style.left=`${r+window.scrollX}px`,bt.style.top=`${(l?n.bottom+6:n.top-i-6)+window.scrollY}px`,nt(`${t}: ${e}`)}document.addEventListener("pointerdown",s=>{
let t=s.target;kt&&!bt.contains(t)&&!kt.contains(t)&&Qt()});window.addEventListener("hashchange",Qt);document.addEventListener("keydown",s=>{s.key!=="Escape"||!kt||
(s.stopPropagation(),kt.focus(),Qt())},{capture:!0});function w(s,t=U[s]){let e=a("button",{type:"button",class:"help","aria-label":`What is ${s}?`,"aria-expand\
ed":"false",onclick:n=>{n.preventDefault(),n.stopPropagation(),kt===e?Qt():Yn(e,s,t)}});return e.textContent="?",e}var B=(s,t=s.toLowerCase())=>a("h3",{},s," ",
w(t));function rt(s){let t=T(s),e=Object.hasOwn(U,s)?U[s]:s===d.importance?U.importance:"",n=t?`${W(t.meaning)}${t.unit?` Unit: ${t.unit}.`:""}`:"";return w(s,[e,n].filter(
Boolean).join(" "))}function ge(s){return w(Y(s),_e(s))}function _e(s){let t=Object.hasOwn(d.kinds,s)?d.kinds[s]:null,e=t?`${W(t.meaning)} Its score must be abo\
ve ${t.threshold} and above chance.`:"";return[...tt(s).map(({name:o,meaning:i})=>W(`${o}: ${i}`)),de(s),e].filter(Boolean).join(" ")}function Qn({q:s,k:t,dim:e},n,o,i,r){let l=n*e,c=l+e,h=o;for(;h+3<i;h+=4){let[u,p,f,m]=[0,0,0,0];for(let b=l,x=h*e;b<c;b+=1,x+=1){let C=s[b];u+=C*t[x],p+=C*t[x+
e],f+=C*t[x+2*e],m+=C*t[x+3*e]}r[h]=u,r[h+1]=p,r[h+2]=f,r[h+3]=m}for(;h<i;h+=1){let u=0;for(let p=l,f=h*e;p<c;p+=1,f+=1)u+=s[p]*t[f];r[h]=u}}function qs(s,t,e){
let{bias:n,softcap:o,sink:i}=s,[r,l,c]=[s.first[t],s.end[t],s.first.length-1-t];e.fill(0),Qn(s,t,r,l,e);let h=i===void 0?-1/0:i;for(let p=r;p<l;p+=1)o!==void 0&&
(e[p]=o*Math.tanh(e[p]/o)),n&&(e[p]+=n[p+c]),e[p]>h&&(h=e[p]);let u=i===void 0?0:Math.exp(i-h);for(let p=r;p<l;p+=1)e[p]=Math.exp(e[p]-h),u+=e[p];for(let p=r;p<
l;p+=1)e[p]/=u;return e}var Jn=40,Xn=()=>new Promise(s=>setTimeout(s)),je=s=>255*Math.sqrt(s)+.5,dt=class s{constructor(t,e,n){this.name=t,this.queries=n.queries,this.keys=n.keys,this.
rows=e.sequences[n.rows],this.columns=e.sequences[n.columns],this.square=n.rows===n.columns,this.coded=null,this.qk=null,this.norms=null,this.completing=null}static async read(t,e,n,o,i){
let r=new s(t,e,n);return o.map!==void 0?r.coded=await Mt(o.map):r.qk=await Zn(o),n.norms!==null&&(r.norms=pt(await Mt(n.norms)).subarray(i*n.keys,(i+1)*n.keys)),
r}static fromWeights(t,e,n){return s.fromCodes(t,e,Uint8Array.from(n,je))}static fromCodes(t,e,n){let o=e.shown.length,i={label:"",queries:o,keys:o,rows:0,columns:0,
norms:null,heads:[]},r=new s(t,{sequences:[e]},i);return r.coded=n,r}complete(){return this.completing??=this.computeAll(),this.completing}async computeAll(){if(this.
coded)return;let t=new Uint8Array(this.queries*this.keys),e=performance.now();for(let n=0;n<this.queries;n+=1){let o=this.row(n);for(let i=0,r=n*this.keys;i<this.
keys;i+=1)t[r+i]=je(o[i]);performance.now()-e>Jn&&(await Xn(),e=performance.now())}this.coded=t}get bytes(){return(this.coded?.length??0)+(this.qk?4*(this.qk.q.
length+this.qk.k.length):0)}row(t){let e=new Float32Array(this.keys);if(this.qk)return qs(this.qk,t,e);if(this.coded)for(let n=0;n<this.keys;n+=1)e[n]=(this.coded[t*
this.keys+n]/255)**2;return e}column(t){let e=new Float32Array(this.queries),n=this.coded;if(n)for(let o=0;o<this.queries;o+=1)e[o]=(n[o*this.keys+t]/255)**2;return e}weights(t,e){
return t?this.row(e):this.column(e)}async preview(t){if(this.coded)return{coded:this.coded,queries:this.queries,keys:this.keys};let e=Math.min(t,this.queries),n=new Uint8Array(
e*this.keys);for(let o=0;o<e;o+=1){let i=this.row(Math.floor((o+.5)*this.queries/e));for(let r=0;r<this.keys;r+=1)n[o*this.keys+r]=je(i[r])}return{coded:n,queries:e,
keys:this.keys}}reweighted(t,e){let n=t?this.norms:null,o=e&&this.columns.special.some(Boolean);if(!n&&!o)return this;let i=new Float32Array(this.keys).fill(1);
for(let l=0;l<this.keys;l+=1)n&&(i[l]=n[l]),o&&this.columns.special[l]&&(i[l]=0);let r=Object.create(this);return r.row=l=>to(this.row(l),i),this.coded&&(r.coded=
eo(this.coded,this.queries,this.keys,i)),r}};async function Zn(s){let{q:t,k:e,first:n,end:o,dim:i}=s,r=await Promise.all([t,e,n,o].map(Mt)),l=s.wide?pt:ds;return{
q:l(r[0]),k:l(r[1]),first:Le(r[2]),end:Le(r[3]),dim:i,bias:s.bias===void 0?null:pt(await Mt(s.bias)),softcap:s.softcap,sink:s.sink}}function to(s,t){let e=0;for(let n=0;n<
s.length;n+=1)s[n]*=t[n],e+=s[n];if(e>0)for(let n=0;n<s.length;n+=1)s[n]/=e;return s}function eo(s,t,e,n){let o=new Uint8Array(s.length);for(let i=0;i<t;i+=1){let r=i*
e,l=0;for(let c=0;c<e;c+=1)l+=s[r+c]**2*n[c];if(l!==0)for(let c=0;c<e;c+=1)o[r+c]=Math.round(s[r+c]*Math.sqrt(n[c]/l*255*255))}return o}function be(s){R("trouble").textContent=s,R("trouble").hidden=!s}async function Is(s,t){try{return await fetch(s,{...t,cache:"no-store"})}catch(e){throw Jt(e)||
be("The server does not answer. Is multihead serve still running?"),e}}async function Fe(s,t,e){let n=Object.entries(t).map(([i,r])=>[i,String(r)]),o=await Is(`${s}\
?${new URLSearchParams(n)}`,{signal:e});if(!o.ok){let i=await o.text();throw be(i),new Error(i)}return be(""),o}async function qt(s,t,e){let n=await Fe(s,t,e);return new Uint8Array(
await n.arrayBuffer())}var Jt=s=>s instanceof DOMException&&s.name==="AbortError";async function Ns(s){let e=await fetch("text",{method:"POST",body:s,headers:{"\
Content-Type":"text/plain"}});if(!e.ok)throw new Error(await e.text());return e.json()}async function Rs(s,t){let e={"Content-Type":"application/json"},n=await Is(
"switches",{method:"POST",body:JSON.stringify(s),headers:e,signal:t});if(!n.ok)throw new Error(await n.text());return be(""),n.json()}var Ps=4096,so=256,no=120,P=class s extends dt{constructor(t,e,n,o){super(t,e,n),this.where=o,this.lines=new Map,this.overview=null,this.latest=null,this.asking=
null,this.controller=null,this.timer=0,this.variants=new Map,this.source=[t,e,n]}complete(){return Promise.resolve()}get bytes(){return 4*this.keys*this.lines.size+
2e6}reweighted(t,e){if(!t&&!e)return this;let n=`${t} ${e}`,o=this.variants.get(n);if(!o){let i={...this.where,...t?{norm:1}:{},...e?{hide:1}:{}};o=new s(...this.
source,i),this.variants.set(n,o)}return o}weights(t,e){return this.lines.get(`${t?"row":"column"} ${e}`)??null}async fetchWeights(t,e){let n=this.weights(t,e);if(n)
return n;let o=t?"row":"column",i=pt(await qt(o,{...this.where,i:e}));return this.lines.size>=so&&this.lines.delete(this.lines.keys().next().value??""),this.lines.
set(`${o} ${e}`,i),i}picture(t,e,n,o){let[i,r]=[Math.floor(t.x),Math.floor(t.y)],l=Math.min(this.keys,Math.ceil(t.x+t.w-1e-9))-i,c=Math.min(this.queries,Math.ceil(
t.y+t.h-1e-9))-r,h={width:Math.min(l,e,Ps),height:Math.min(c,n,Ps)},u={x:i,y:r,w:l,h:c,...h},p=Object.values(u).join(" ");return this.latest?.key===p?this.latest:
this.overview?.key===p?this.overview:(this.asking!==p&&(this.cancel(),this.asking=p,this.timer=window.setTimeout(()=>this.fetchPicture(u,p,o),this.overview?no:0)),
this.overview)}async fetchPicture(t,e,n){this.controller=new AbortController;try{let o=await qt("map",{...this.where,...t},this.controller.signal);this.latest={
key:e,part:t,coded:o,keys:t.width,queries:t.height},t.w===this.keys&&t.h===this.queries&&(this.overview=this.latest),this.asking=null,n()}catch(o){this.asking===
e&&(this.asking=null),Jt(o)||nt(String(o))}}cancel(){clearTimeout(this.timer),this.controller?.abort(),this.asking=null}async preview(t){let[e,n]=[Math.min(t,this.
keys),Math.min(t,this.queries)],o={x:0,y:0,w:this.keys,h:this.queries,width:e,height:n,thin:1};return{coded:await qt("map",{...this.where,...o}),keys:e,queries:n}}};
function _s({part:s,keys:t,queries:e},n){let[o,i]=[t/s.w,e/s.h];return{x:(n.x-s.x)*o,y:(n.y-s.y)*i,w:n.w*o,h:n.h*i}}var oo=96e6,io=2048,_t=new Map,He=new Map;async function It(s,t){let e=`${s} ${t}`,n=_t.get(e);if(n)return We(e,n),n;let o=v[t],i=o&&d.texts[s]?.layers[o.site],
r=i?.heads[o.head];if(!i||!r)return null;let l=He.get(e);l||(l=r.served?ro(s,t):dt.read(d.heads[t],d.texts[s],i,r,o.head),He.set(e,l));try{let c=await l;return We(
e,c),c}finally{He.delete(e)}}async function ut(s,t){let e=await It(s,t);return e&&!e.coded&&(await e.complete(),We(`${s} ${t}`,e)),e}function We(s,t){_t.delete(
s),_t.set(s,t);let e=0;for(let n of _t.values())e+=n.bytes;for(let[n,o]of _t){if(e<=oo||n===s)break;_t.delete(n),e-=o.bytes}}async function ro(s,t){let e=d.texts[s],
n=v[t],o=e.layers[n.site],i={text:s,layer:o.label,head:n.head},{queries:r,keys:l}=o;if(Math.max(r,l)>io)return new P(d.heads[t],e,o,i);let c=new dt(d.heads[t],e,
o),h={x:0,y:0,w:l,h:r,width:l,height:r},[u,p]=await Promise.all([qt("map",{...i,...h}),qt("norms",i)]);return c.coded=u,c.norms=pt(p),c}async function yt(s,t,e){
return s instanceof P?s.fetchWeights(t,e):t?s.row(e):(await s.complete(),s.column(e))}function js(s,t,e,n){let o=new Int32Array(n+1);for(let i=0;i<=n;i+=1)o[i]=Math.min(e,Math.floor(s+i/n*t+1e-9));return o}function ze({coded:s,keys:t,queries:e},n,o,i){
let r=Ts(),l=new ImageData(o,i),c=new Uint32Array(l.data.buffer),h=js(n.x,n.w,t,o),u=js(n.y,n.h,e,i),p=new Uint8Array(o),f=-1;for(let m=0;m<i;m+=1){let[b,x]=[u[m],
Math.max(u[m]+1,u[m+1])],C=b===f&&x===b+1,E=m*o;if(C){c.copyWithin(E,E-o,E);continue}p.fill(0);for(let g=b;g<x&&g<e;g+=1)for(let N=0,j=g*t;N<o;N+=1){let st=Math.
min(t,Math.max(h[N]+1,h[N+1])),V=p[N];for(let at=h[N];at<st;at+=1)s[j+at]>V&&(V=s[j+at]);p[N]=V}f=x===b+1?b:-1;for(let g=0;g<o;g+=1)c[E+g]=r[p[g]]}return l}async function Fs(s,t){
let e=a("canvas",{class:"thumb","aria-hidden":"true"});D(e,t,t);let n=Math.round(t*Nt()),o=await s.preview(n),i={x:0,y:0,w:o.keys,h:o.queries};return Gt(e).putImageData(
ze(o,i,n,n),0,0),e}var De=s=>s.reduce((t,e)=>e>t?e:t,0),Xt=56;function Hs(s,t,{left:e,width:n,window:o}){let i=D(s,e+n,Xt),r=Math.max(1e-9,De(t)),l=n/o.w;i.fillStyle=
M("--dim"),i.font=`11px ${z}`,i.textAlign="right",i.textBaseline="top",i.fillText(k(r),e-6,2),i.textBaseline="bottom",i.fillText("0",e-6,Xt-2),i.fillStyle=M("--\
line"),i.fillRect(e,Xt-1,n,1),i.fillStyle=M("--accent");let c=Math.min(t.length,o.x+o.w);for(let h=Math.floor(o.x);h<c;h+=1){let u=t[h]/r*(Xt-8),p=e+(h-o.x)*l;p+
l<=e||u<=.2||i.fillRect(Math.max(e,p),Xt-1-u,Math.max(1,l-(l>4?1:0)),u)}}var ao=5,lo=.04,jt=2e3,xt=class{constructor(t,{hover:e,pick:n,label:o}){this.sequence=t,this.from=0,this.spans=[],this.shades=new Int8Array(0),this.marked=null,
this.painted=[null,null],this.arcs=_("svg",{class:"arcs","aria-hidden":"true"}),this.text=a("p",{class:"tokens","aria-label":o}),this.part=t.shown.length>jt?a("\
p",{class:"part"}):null,this.box=a("div",{class:"reading"},this.arcs,this.part,this.text),this.fill(0);let i=(r,l)=>this.text.addEventListener(r,c=>{let h=Ws(c);
h!==null&&l(h)});i("pointerover",e),i("focusin",e),i("click",n),this.text.addEventListener("pointerleave",()=>e(null)),this.text.addEventListener("keydown",r=>this.
onKey(r,n))}fill(t){let{shown:e,special:n,joined_to_previous:o}=this.sequence,i=Math.min(jt,e.length-t);if(this.from=t,this.spans=Array.from({length:i},(c,h)=>{
let u=e[t+h],p=u.length>40?S(u,400):null,m={class:n[t+h]?"token special":"token","data-i":t+h,role:"button",tabindex:h?"-1":"0",title:p};return a("span",m,S(u,40))}),
this.shades=new Int8Array(i),this.marked=null,this.text.replaceChildren(...this.spans.flatMap((c,h)=>[o[t+h]&&h?"":" ",c])),!this.part)return;let r=(c,h)=>{let u=c<
0||c>=e.length;return a("button",{type:"button",disabled:u,onclick:()=>this.showFrom(c)},h)},l=`tokens ${t} to ${t+i-1} of ${e.length}`;this.part.replaceChildren(
r(t-jt,"earlier"),l,r(t+jt,"later"))}showFrom(t){this.fill(t),this.draw()}onKey(t,e){let n=Ws(t);if(n===null)return;let o={ArrowLeft:-1,ArrowRight:1,Enter:0," ":0}[t.
key];if(o===void 0)return;if(t.preventDefault(),t.stopPropagation(),o===0){e(n);return}let i=this.spans[n-this.from+o];i&&(this.spans[n-this.from].tabIndex=-1,i.
tabIndex=0,i.focus())}paint(t,e){this.painted=[t,e],this.part&&e!==null&&!this.spanOf(e)&&this.fill(Math.floor(e/jt)*jt),this.draw()}spanOf(t){return this.spans[t-
this.from]}draw(){let[t,e]=this.painted,n=t?Math.max(1e-9,De(t)):1;this.spans.forEach((o,i)=>{let r=t?t[this.from+i]:0,l=r>.001||r>0&&this.part?Math.sqrt(r/n):0,
c=l>.02?Math.round(72*l):0;c!==this.shades[i]&&(this.shades[i]=c,o.style.backgroundColor=c?`color-mix(in srgb, var(--shade) ${c}%, transparent)`:"",o.style.color=
c>0?"var(--ink)":"")}),this.marked?.classList.remove("from"),this.marked=e===null?null:this.spanOf(e)??null,this.marked?.classList.add("from"),this.arcs.replaceChildren(),
t&&e!==null&&this.marked&&this.drawArcs(t,e,this.marked)}drawArcs(t,e,n){let o=this.box.getBoundingClientRect(),i=l=>{let c=l.getBoundingClientRect();return[c.left+
c.width/2-o.left,c.top-o.top]},r=i(n);for(let l of Zt(t,ao,lo,c=>c!==e&&this.spanOf(c)!==void 0)){let c=i(this.spanOf(l)),h=Math.min(r[1],c[1])-Math.min(34,8+Math.
abs(c[0]-r[0])/9),u=_("path",{d:`M${r} C${r[0]},${h} ${c[0]},${h} ${c}`,fill:"none","stroke-width":(.8+3*Math.sqrt(t[l])).toFixed(2),"stroke-opacity":(.35+.6*t[l]).
toFixed(2)});this.arcs.append(u)}}};function Ws(s){let t=oe(s,".token");return t?Number(t.dataset.i):null}function Zt(s,t,e,n=()=>!0){let o=[];for(let i=0;i<s.length;i+=
1)s[i]>=e&&n(i)&&o.push(i);return o.sort((i,r)=>s[r]-s[i]).slice(0,t)}var co=3,ho=3,Be=24,uo=.02,ke=class{constructor(){this.list=a("ol");let t=B("Three rows of this text","example rows");this.element=a("section",{class:"pairs row\
s"},t,this.list)}async show(t){let e;if(t instanceof P){let l=await Fe("pairs",t.where).catch(()=>null);if(!l)return;e=await l.json()}else e=mo(t);let n=new Set,
o=l=>n.size<n.add(t.rows.shown[l]).size,i=e.map(([,l])=>l).filter(o).slice(0,co),r=await Promise.all(i.map(l=>yt(t,!0,l))).catch(()=>null);r&&this.list.replaceChildren(
...i.map((l,c)=>po(t,l,r[c])))}};function po(s,t,e){let n=l=>a("span",{class:"word"},S(l,14)),o=Zt(e,ho,uo).map(l=>a("span",{},n(s.columns.shown[l])," ",a("smal\
l",{},k(e[l])))),i=H({row:String(t),dir:void 0}),r=a("a",{href:i,title:`token ${t}`},n(s.rows.shown[t]));return a("li",{},r," → ",a("span",{class:"keys"},o))}
function mo({coded:s,keys:t,queries:e,square:n,rows:o,columns:i}){let r=[],l=-1;for(let c=0;s&&c<e;c+=1)if(!o.special[c])for(let h=0,u=c*t;h<t;h+=1)s[u+h]<=l||i.
special[h]||n&&c===h||(r.push([s[u+h],c,h]),r.sort((p,f)=>f[0]-p[0]),r.length>Be&&r.pop(),r.length===Be&&(l=r[Be-1][0]));return r.map(([c,h,u])=>[(c/255)**2,h,u])}var zs=new Map;async function ye(s){let t=zs.get(s.name);t||(t=Mt(s.line),zs.set(s.name,t));let e=await t,n=d.pairs?.heads.length??0;return(o,i)=>{let r=e[o*n+i];
return r===255?NaN:s.low+r/254*(1-s.low)}}var Ds={cka:"CKA",attention:"attention distance",write:"write overlap",read:"read overlap"},vt=({name:s})=>Object.hasOwn(
Ds,s)?Ds[s]:s,Bs={correlation:"Do two heads write the same vectors?",cka:"Do two heads write the same, up to a rotation?",attention:"Do two heads look at the sa\
me tokens?",write:"Do two heads write into the same directions, by their weights?",read:"Do two heads read from the same directions, by their weights?"},Ue=({name:s})=>Object.
hasOwn(Bs,s)?Bs[s]:s,xe=s=>`${Ue(s)} ${W(s.meaning)}`,te=s=>s.name==="attention";function Us(s,t,e,n){let o=te(s)?1:-1,i=[];return e.forEach((r,l)=>{for(let c of e.
slice(l+1)){let h=t(r,c);Number.isNaN(h)||i.push(r<c?[r,c,h]:[c,r,h])}}),i.sort((r,l)=>o*(r[2]-l[2])||r[0]-l[0]||r[1]-l[1]).slice(0,n)}var Vs={stack:void 0,layer:void 0,head:void 0,row:void 0,second:void 0},fo=4,ee=class{constructor(t,e=!1){this.rows=new ke;let n=`Numbers of ${d.heads[t]}`,o=d.
texts.length?this.rows.element:null,i=[wo(t),go(t),o,xo(t),$o(t),To(t),So(t),Oo(t,e)];this.element=a("aside",{class:"panel","aria-label":n},i)}};function wo(s){
let t=ht(s);if(!t)return null;let e=et(s),n=y.shares.map((i,r)=>{let[l,c]=[A(`${i.name}_low`,s),A(`${i.name}_high`,s)],h=w(i.name,W(i.meaning)),u=a(e.includes(i)?
"b":"span",{},i.name," ",h);return Ks(u,{label:i.name,value:t[r],color:i.colour,low:l,high:c})}),o=a("p",{class:"dim"},"Parts of log n; the lines are 95 % inter\
vals.");return a("section",{class:"shares"},B("What decides where it looks","shares"),n,o)}function go(s){if(!T("kind"))return null;let t=q(s),e=d.why?.[d.heads[s]],
n=Object.keys(d.kinds).map(l=>({name:l,score:A(`kind:${l}`,s)})).sort((l,c)=>+(c.name===t)-+(l.name===t)||(c.score??0)-(l.score??0)),o=n.slice(0,fo).map(({name:l,
score:c})=>c===null?null:yo(s,l,c,l===t)),i=e?`${U.evidence} Here: ${e}.`:U.evidence,r=a("p",{class:"dim"},"Bars are scores, ticks are thresholds. ",w("score"));
return a("section",{},B("Kind"),a("p",{},a("b",{},Q(s))),a("p",{class:"dim"},`${bo(s,n)} `,w("evidence",i)),a("div",{class:"scores"},o,r),ko(s))}function bo(s,t){
let e=t.find(({score:r})=>r!==null);if(!e)return"No kind could be measured.";let{threshold:n}=d.kinds[e.name],o=k(e.score);if(e.name!==q(s))return`${`Closest: ${Y(
e.name)}, with a score of ${o}.`} Its 95 % interval would have to be above ${n} and above chance.`;let i=k(A("kind_control",s));return`Its score is ${o}: clear\
ly above the threshold (${n}) and above chance (${i}).`}function ko(s){let t={position:"positions, not words",content:"words, not positions",both:"positions and\
 words"},e=F("driven",s);if(!Object.hasOwn(t,e))return null;let n=A("driven_score",s),o=`Tokens were shuffled. The value is the overlap of the maps at the same \
positions, minus the overlap at the same words: ${n!==null&&n>0?"+":""}${k(n)}.`;return a("p",{class:"dim"},`Follows ${t[e]} `,w("follows",o))}function yo(s,t,e,n){
let{threshold:o}=d.kinds[t],[i,r,l]=["kind_control","kind_low","kind_high"].map(u=>n?A(u,s):null),c=`${Y(t)} ${k(e)}, threshold ${o}`,h=a("span",{},Y(t)," ",ge(
t));return Ks(h,{label:c,value:e,color:Ct(t),threshold:o,chance:i,low:r,high:l})}function Ks(s,{label:t,value:e,color:n,threshold:o,chance:i=null,low:r,high:l}){
let c=u=>`${(100*Math.max(0,Math.min(1,u))).toFixed(1)}%`,h=_("svg",{class:"score",role:"img","aria-label":t});return h.append(_("rect",{x:0,y:5,width:"100%",height:6,
class:"track",rx:3}),_("rect",{x:0,y:5,width:c(e),height:6,rx:3,fill:n})),o!==void 0&&h.append(_("rect",{x:c(o),y:1,width:1.5,height:14,class:"tick"})),r!==null&&
l!==null&&h.append(_("line",{x1:c(r),x2:c(l),y1:8,y2:8,class:"ends"})),i!==null&&h.append(_("circle",{cx:c(i),cy:8,r:3,class:"chance"})),a("div",{class:"scoreli\
ne"},s,h,a("span",{class:"value"},k(e)))}function xo(s){if(!d.importance)return null;let t=A("rank",s),e=ae(s),n=e===null?"":` ± ${L(e,1)}`,o=t===null?"":`, ra\
nk ${t} of ${d.heads.length}`,i=`${W(T(d.importance)?.meaning??"")} ${W(d.corpus.loss??"")}`.trim();return a("section",{},B("Importance"),a("p",{},a("b",{},L(mt(
s),2)),`${n}${o}.`),vo(s),a("p",{class:"dim"},`${U.importance.split(".")[0]}. `,w("how importance is measured",i)))}function vo(s){if(!d.curve||!ot.has(d.heads[s]))
return null;let e=`Can be pruned${ot.size>1?`, together with ${ot.size-1} others,`:""} for less than ${wt(d.curve.limit)} of quality. `;return a("p",{},e,a("a",
{href:H({...Vs,view:"pruning"})},"Show pruning →"))}function $o(s){let t=F("most_similar",s),e=I.get(t);if(e===void 0)return null;let n=`, CKA similarity ${k(
A("most_similar_cka",s))} `,o=H({...Vs,view:"similarity",pick:d.heads[s]});return a("section",{},B("Most similar","most similar"),a("p",{},a("a",{href:O(e)},t),
n,w("CKA")),a("p",{},a("a",{href:H({second:t})},"Show side by side →")),a("p",{},a("a",{href:o},"Show all pairs →")))}function So(s){let t=d.often?.[d.heads[s]];
if(!t?.length)return null;let e="For every token, the other token with the largest weight, special tokens excluded: mean weight × number of times. The pairs wit\
h the most weight in total come first.",n=t.map(([i,r,l,c])=>Mo(i,r,`${k(c)} × ${l}`)),o=a("h3",{},"Strongest pairs over the corpus ",w("pairs",e));return a("s\
ection",{class:"pairs often"},o,a("ol",{},n))}function Mo(s,t,e){let n=o=>a("span",{class:"word"},S(o,14));return a("li",{},n(s)," → ",n(t),a("span",{class:"v\
alue"},e))}function To(s){let t=[];for(let h=-64;h<=64;h+=1){let u=A(`offset${h<0?h:`+${h}`}`,s);u!==null&&t.push([h,u])}if(t.length<3)return null;let e=Math.max(
...t.map(([,h])=>h),1e-9),n=100/t.length,i=_("svg",{class:"offsets",role:"img","aria-label":"mean weight by distance",...{viewBox:"0 0 100 40",preserveAspectRatio:"\
none"}});t.forEach(([h,u],p)=>{let f=u/e*38,[m,b]=[(p*n+n*.12).toFixed(2),(40-f).toFixed(2)],x={width:(n*.76).toFixed(2),height:f.toFixed(2)},C=_("rect",{x:m,y:b,
...x,class:h===0?"zero":""});C.append(_("title",{},`${h>0?"+":""}${h}: ${k(u)}`)),i.append(C)});let[r,l]=[t[0][0],t[t.length-1][0]],c=[`${-r} back`,"itself",`${l}\
 ahead`].map(h=>a("span",{},h));return a("section",{},B("Where it looks, by distance","by distance"),i,a("p",{class:"ends dim"},c),a("p",{class:"dim"},`Highest \
bar: ${k(e)} of the weight, mean over the corpus.`))}var Ao=["kind","most_similar","second","third","order$","cluster$","driven","leading$"],Eo=new RegExp(`^(of\
fset[+-]|(spread|rest|position|word|match)_|${Ao.join("|")})`);function Oo(s,t){let e=Object.keys(d.table??{}).filter(c=>!Eo.test(c));if(!e.length)return null;let n=a(
"tbody"),o=()=>{if(!(!l.open||n.firstChild))for(let c of e){let h=Tt(c,s),u=typeof h=="string"?h:L(h),p=h===null?fs(c,s):"",f=a("td",{},u,p?w(`missing: ${c}`,W(
p)):null),m=a("th",{scope:"row"},c," ",rt(c));n.append(a("tr",{},m,f,a("td",{class:"dim"},T(c)?.unit)))}},i=a("table",{class:"measures"},n),r=a("summary",{},`Al\
l ${e.length} measures`),l=a("details",{open:t,ontoggle:o},r,i);return l}var Lo=["kind_score","entropy","max_weight","distance","first","special","previous","ou\
tput_norm"];function Gs(s,t){let n=[d.importance,...Lo].filter(c=>c!==null&&T(c)!==null).map(c=>{let h=a("th",{scope:"row"},c," ",rt(String(c)));return a("tr",{},
h,[s,t].map(u=>a("td",{},L(A(c,u)))))}),o=T("kind")?a("tr",{},a("th",{scope:"row"},"kind ",w("kind")),[s,t].map(c=>a("td",{},ws(c)))):null,i=[s,t].map(c=>a("th",
{scope:"col"},d.heads[c])),r=a("thead",{},a("tr",{},a("td"),i)),l=a("table",{class:"measures"},r,a("tbody",{},o,n));return a("div",{class:"pair"},B("Both heads \
in numbers","measures"),l)}function Ys(s,t){let e=a("span",{class:"alikeness"}),{pairs:n}=d;if(!n)return e;let[o,i]=[s,t].map(r=>n.heads.indexOf(d.heads[r]));return Promise.
all(n.measures.map(ye)).then(r=>{e.append("Similarity: "),r.forEach((l,c)=>{let h=n.measures[c],u=`${c?", ":""}${vt(h)} ${k(l(o,i))} `;e.append(u,w(vt(h),xe(h)))})}),
e}var Co=150;function qo(s){let t=[{key:"head",title:"Head",help:w("head"),value:e=>e,show:e=>d.heads[e]}];if(T("kind")){let e=i=>Q(i)||null;t.push({key:"kind",title:"\
Kind",help:w("kind"),value:e,show:Ve,words:!0});let n=i=>A("kind_score",i),o=i=>k(n(i));Yt()||t.push({key:"score",title:"Score",help:w("score"),value:n,show:o})}
if(Yt()){let[e,n]=["shares","Shares"];t.push({key:e,title:n,help:w("shares"),value:Io,show:No,words:!0})}if(d.importance){let e=rt(d.importance);t.push({key:"im\
portance",title:"Importance",help:e,value:mt,show:Ro})}if(T("most_similar")){let e=i=>A("most_similar_cka",i),[n,o]=["most_similar","Most similar"];t.push({key:n,
title:o,help:w("most similar"),value:e,show:Po,words:!0})}if(s!=="kind"&&s!=="shares"&&s!==d.importance&&T(s)){let e=o=>Tt(s,o),n=o=>{let i=e(o);return typeof i==
"string"?i:L(i)};t.push({key:s,title:s,help:rt(s),value:e,show:n})}return t}function Ve(s){let t=a("i",{class:"dot","aria-hidden":"true"});return t.style.background=
q(s)?me(q(s)):"transparent",[t,Q(s)||L(null)]}function Io(s){let t=ht(s),e=y.shares.indexOf(et(s)[0]);return t&&e>=0?2*e-t[e]:null}function No(s){let t=ht(s);if(!t)
return L(null);let e=y.shares.map(({name:i},r)=>`${i} ${k(t[r])}`).join(", "),n=_("svg",{class:"sharebar",role:"img","aria-label":e,viewBox:"0 0 1 1"});n.setAttribute(
"preserveAspectRatio","none");let o=0;return t.forEach((i,r)=>{n.append(_("rect",{x:o,y:0,width:Math.max(0,i),height:1,fill:y.shares[r].colour})),o+=i}),n}function Ro(s){
let t=ae(s),e=t===null?null:a("small",{},` ± ${L(t,1)}`);return[L(mt(s),2),e]}function Po(s){let t=F("most_similar",s);return t?[`${t} `,a("small",{},k(A("most\
_similar_cka",s)))]:L(null)}function _o(s,t,e){return[...s].sort((n,o)=>{let[i,r]=[t.value(n),t.value(o)];if(i===null||r===null)return+(i===null)-+(r===null)||n-
o;let l=i<r?-1:i>r?1:0;return(e?-l:l)||n-o})}function Qs(s,t,e){let n=qo(e),o=E=>n.find(g=>g.key===E),i=o(s.sort)??o("importance")??n[0],r=["head","kind","share\
s"].includes(i.key),l=(s.down??(r?"0":"1"))==="1",c=_o(t,i,l),h=n.map(E=>{let g=E===i,N=()=>$({sort:E.key,down:g?l?"0":"1":void 0}),j=g?l?" ↓":" ↑":"",st=g?
l?"descending":"ascending":"none",V=a("button",{type:"button",onclick:N},E.title+j);return a("th",{scope:"col",class:E.words?"words":"","aria-sort":st},V,E.help)}),
u=a("tbody"),p=a("button",{type:"button",class:"more"}),f=()=>{let E=u.rows.length;u.append(...c.slice(E,E+Co).map(g=>jo(g,n))),p.hidden=u.rows.length>=c.length,
p.textContent=`Show more of ${c.length} heads`};p.addEventListener("click",f),f();let m=a("caption",{class:"quiet"},"All heads"),b=a("table",{class:"heads"},m,a(
"thead",{},a("tr",{},h)),u),x={class:"scroll",tabindex:"0",role:"region","aria-label":"Table of heads"},C=a("button",{type:"button",onclick:Wo},"Download CSV");
return a("div",{class:"table"},a("div",x,b,p),a("p",{class:"tail"},C))}function jo(s,t){let e=t.map(({show:n,words:o},i)=>i===0?a("th",{scope:"row"},a("a",{href:O(
s)},n(s))):a("td",{class:o?"words":""},n(s)));return a("tr",{"data-head":d.heads[s]},e)}var Fo=/^[=+\-@\t\r]/;function Ho(s){return s===null?"":typeof s=="numbe\
r"?String(s):`"${(Fo.test(s)?`'${s}`:s).replaceAll('"','""')}"`}function Wo(){let s=Object.keys(d.table??{}),t=d.heads.map((n,o)=>{let{site:i,number:r}=v[o];return[
n,d.sites[i].layer,r,...s.map(l=>Tt(l,o))]}),e=[["head","layer","number",...s],...t].map(n=>`${n.map(Ho).join(",")}\r
`);ne(new Blob(e,{type:"text/csv"}),"heads.csv")}var zo=84,ve=class{constructor(t,e){this.text=e,this.site=-1,this.slots=[],this.element=a("section",{class:"strip"}),this.show(t)}show(t){v[t].site!==this.site&&
this.fill(v[t].site);for(let{head:e,slot:n}of this.slots)n.href=O(e),n.className=e===t?"slot on":"slot"}fill(t){this.site=t;let{label:e,heads:n}=d.sites[t];this.
slots=Array.from({length:n},(i,r)=>{let l=K[t]+r,c=a("span",{class:"hole"}),h=d.heads[l],u=a("a",{"aria-label":`${h} ${Q(l)}`},c,a("span",{class:"name"},h));return{
head:l,slot:u,picture:c}}),this.element.setAttribute("aria-label",`Heads of ${e}`);let o=a("div",{class:"slots"},this.slots.map(({slot:i})=>i));this.element.replaceChildren(
a("h3",{},`All heads of ${e}`),o),this.drawAll()}async drawAll(){let{slots:t}=this;if(d.texts.length)for(let{head:e,slot:n,picture:o}of t){if(await se(),t!==this.
slots||n!==t[0].slot&&!n.isConnected)return;let i=await It(this.text,e).catch(()=>null);i&&o.replaceChildren(await Fs(i,zo).catch(()=>""))}}};var Do=104,Bo=22,Js=11,Uo=720,Xs=4,Ft=class{constructor({point:t,pick:e,drawn:n}){this.point=t,this.pick=e,this.drawn=n,this.map=null,this.window={x:0,y:0,w:1,h:1},
this.mark={row:null,column:null},this.width=0,this.height=0,this.room=0,this.type=1,this.dragged=!1,this.painted=null,this.pointers=new Map,this.canvas=a("canva\
s",{class:"map",role:"img",tabindex:"-1"}),this.box=a("div",{class:"mapbox"},this.canvas),this.canvas.addEventListener("wheel",o=>this.onWheel(o),{passive:!1}),
this.canvas.addEventListener("pointerdown",o=>this.onDown(o)),this.canvas.addEventListener("pointermove",o=>this.onMove(o)),this.canvas.addEventListener("pointe\
rup",o=>this.onUp(o)),this.canvas.addEventListener("pointercancel",o=>this.pointers.delete(o.pointerId)),this.canvas.addEventListener("pointerleave",()=>this.point(
null)),this.canvas.addEventListener("dblclick",()=>this.showAll())}get labels(){return Math.round(Do*this.type)}get place(){return{left:this.labels,width:this.width,
window:this.window}}show(t){let e=this.map&&this.map.queries===t.queries&&this.map.keys===t.keys;this.map=t,e||(this.window={x:0,y:0,w:t.keys,h:t.queries});let n=`${t.
queries} queries down, ${t.keys} keys across`,o=`Attention map of ${t.name}: ${n}. The text below has the same weights.`;this.canvas.setAttribute("aria-label",o)}clear(){
D(this.canvas,this.canvas.clientWidth,this.canvas.clientHeight)}showAll(){this.map&&(this.window={x:0,y:0,w:this.map.keys,h:this.map.queries},this.draw())}zoom(t,e=this.
width/2,n=this.height/2){let{map:o,window:i}=this;if(!o)return;let[r,l]=[i.x+e/this.width*i.w,i.y+n/this.height*i.h],c=Math.max(Math.min(Xs,o.keys),Math.min(o.keys,
i.w/t)),h=Math.max(Math.min(Xs,o.queries),Math.min(o.queries,i.h/t));this.window={w:c,h,x:r-e/this.width*c,y:l-n/this.height*h},this.draw()}clampWindow(){let{map:t,
window:e}=this;t&&(e.x=Math.max(0,Math.min(t.keys-e.w,e.x)),e.y=Math.max(0,Math.min(t.queries-e.h,e.y)))}onWheel(t){if(t.deltaY>0&&this.window.w>=(this.map?.keys??
0)&&!t.ctrlKey&&!t.metaKey)return;t.preventDefault();let[n,o]=lt(t,this.canvas);this.zoom(Math.exp(-t.deltaY/300),n-this.labels,o-this.labels)}onDown(t){this.canvas.
setPointerCapture(t.pointerId),this.pointers.set(t.pointerId,lt(t,this.canvas)),this.dragged=!1}onMove(t){let e=lt(t,this.canvas),n=this.pointers.get(t.pointerId);
if(!n){this.point(this.cellAt(e));return}let o=[...this.pointers].find(([i])=>i!==t.pointerId)?.[1];if(o){let i=c=>Math.hypot(c[0]-o[0],c[1]-o[1]),[r,l]=[(e[0]+
o[0])/2-this.labels,(e[1]+o[1])/2-this.labels];this.dragged=!0,this.zoom(i(e)/Math.max(1,i(n)),r,l)}else if(this.dragged||Math.hypot(e[0]-n[0],e[1]-n[1])>4)this.
dragged=!0,this.window.x-=(e[0]-n[0])/this.width*this.window.w,this.window.y-=(e[1]-n[1])/this.height*this.window.h,this.draw();else return;this.pointers.set(t.
pointerId,e)}onUp(t){if(this.pointers.delete(t.pointerId),this.dragged)return;let e=this.cellAt(lt(t,this.canvas));e&&this.pick(e)}cellAt([t,e]){let{map:n,window:o}=this;
if(!n||t<this.labels||e<this.labels)return null;let i=Math.floor(o.x+(t-this.labels)/this.width*o.w),r=Math.floor(o.y+(e-this.labels)/this.height*o.h);return r>=
0&&i>=0&&r<n.queries&&i<n.keys?[r,i]:null}observeRoom(){let t=()=>{let e=this.box.clientWidth;return e===this.room?!1:(this.room=e,this.type=bs(),!0)};t(),new ResizeObserver(
()=>t()&&this.draw()).observe(this.box)}draw(){let{map:t}=this;if(!t)return;this.clampWindow(),this.room||this.observeRoom(),this.width=Math.max(80,Math.min(this.
room||560,this.type*Uo)-this.labels),this.height=Math.max(80,Math.min(1.6*this.width,this.width*t.queries/t.keys));let e=D(this.canvas,this.width+this.labels,this.
height+this.labels),n=Math.round(this.labels*Nt()),o=this.paint(t);this.canvas.toggleAttribute("data-waiting",t instanceof P&&t.asking!==null),o&&e.putImageData(
o,n,n),this.drawFrame(e,t),this.drawMarks(e),this.drawn()}paint(t){let e=Nt(),[n,o]=[Math.round(this.width*e),Math.round(this.height*e)],i=()=>this.box.isConnected&&
this.draw(),r=t instanceof P?t.picture(this.window,n,o,i):null,l=t.coded??r?.coded;if(!l)return null;let c=[...Object.values(this.window),n,o].join(" ");if(this.
painted?.key!==c||this.painted.from!==l){let h=r??{coded:l,keys:t.keys,queries:t.queries},u=r?_s(r,this.window):this.window;this.painted={key:c,from:l,image:ze(
h,u,n,o)}}return this.painted.image}drawFrame(t,e){let{window:n,width:o,height:i,labels:r,type:l}=this,[c,h]=[o/n.w,i/n.h];t.strokeStyle=M("--line"),t.strokeRect(
r-.5,r-.5,o+1,i+1),t.font=`600 ${12*l}px ${z}`,t.fillStyle=M("--ink"),t.textBaseline="middle",t.textAlign="center",t.fillText(o<180*l?"key":"key: the token look\
ed at",r+o/2,8*l),it(t,i<180*l?"query":"query: the token that looks",8*l,r+i/2),t.textAlign="right";let u=(m,b,x)=>(t.fillStyle=M(x?"--ink":b?"--faint":"--dim"),
t.font=`${x?"600 ":""}${11*l}px ${z}`,Vo(t,m,r-(Bo+8)*l)),p=Math.max(1,Math.ceil(l*Js/h));for(let m=Math.ceil(n.y/p-1e-9)*p;m<Math.min(e.queries,n.y+n.h);m+=p){
let b=r+(m+.5-n.y)*h;b<r+2||b>r+i-2||t.fillText(u(e.rows.shown[m],e.rows.special[m],m===this.mark.row),r-6,b)}t.textAlign="left";let f=Math.max(1,Math.ceil(l*Js/
c));for(let m=Math.ceil(n.x/f-1e-9)*f;m<Math.min(e.keys,n.x+n.w);m+=f){let b=r+(m+.5-n.x)*c;if(b<r+2||b>r+o-2)continue;let x=u(e.columns.shown[m],e.columns.special[m],
m===this.mark.column);it(t,x,b,r-6)}}drawMarks(t){let{window:e,width:n,height:o,labels:i}=this,{row:r,column:l}=this.mark,[c,h]=[n/e.w,o/e.h];t.save(),t.beginPath(),
t.rect(i,i,n,o),t.clip(),t.strokeStyle=M("--mark"),t.lineWidth=1.5,r!==null&&t.strokeRect(i-2,i+(r-e.y)*h,n+4,Math.max(2,h)),l!==null&&t.strokeRect(i+(l-e.x)*c,
i-2,Math.max(2,c),o+4),t.restore()}savePng(){let{map:t}=this;if(!t)return;let e=a("canvas",{width:this.canvas.width,height:this.canvas.height}),n=Gt(e);n.fillStyle=
M("--paper"),n.fillRect(0,0,e.width,e.height),n.drawImage(this.canvas,0,0),e.toBlob(o=>o&&ne(o,`${t.name}.png`))}};function Vo(s,t,e){let n=S(t,18);for(;n.length>
2&&s.measureText(n).width>e;)n=`${Array.from(n).slice(0,-2).join("")}…`;return n}var Zs=new Map;function Ht(s){let t=Z(s.text,d.texts.length)??-1;return d.texts[t]?t:d.texts.findIndex(Boolean)}function Wt(s){let{texts:t}=d;if(!t.length)return[];
let{source:e}=t[s],n=new Map,o=[];t.forEach((l,c)=>{n.has(l.source)||n.set(l.source,c),l.source===e&&o.push([String(c),`${l.window[0]+1} of ${l.window[1]}`])});
let i=l=>$({text:l,row:void 0}),r=[];if(n.size>1){let l=[...n.values()].map(c=>[String(c),t[c].name]);r.push(X("Text",l,String(n.get(e)),i))}return o.length>1&&
r.push(X("Window",o,String(s),i)),[...r,Ke({},s)]}function Ke(s={},t=-1){if(!d.served)return null;let n=a("textarea",{rows:"5","aria-label":"Your text",placeholder:"\
Type or paste a text"});n.value=Zs.get(t)??"";let o=a("button",{type:"button",class:"primary"},"Show this text"),i=a("span",{class:"dim",role:"status"});return o.
addEventListener("click",async()=>{if(!n.value.trim()){i.textContent="Type a text first.",n.focus();return}o.disabled=!0,i.textContent="The model is reading it \
…";try{let{texts:r,first:l}=await Ns(n.value);r.forEach((c,h)=>d.texts[l+h]=c),Zs.set(l,n.value),$({...s,text:String(l),row:void 0})}catch(r){i.textContent=r instanceof
Error?r.message:String(r)}o.disabled=!1}),a("details",{class:"own"},a("summary",{},"Try your own text"),n,a("p",{},o," ",i))}var zt="looks",Dt="seen",Ko=1e6,Go=80,Yo=70;function sn(s,t){let e=s.second===void 0?void 0:I.get(s.second),n=new Ge(s,t,e??null);return{element:n.element,start:()=>n.
start(),resize:()=>n.paint(),stop:()=>n.stop(),moveTo:(o,i)=>n.moveTo(o,i)}}function tn(s){let{stack:t,layer:e,head:n,row:o,...i}=s;return JSON.stringify(i)}var Ge=class{constructor(t,e,n){
this.state=t,this.head=e,this.second=n,this.text=Ht(t),this.looks=t.dir!==Dt,this.live=!0,this.turn=0,this.pinned=null,this.token=null,this.cell=null,this.timer=
0,this.texts=null,this.spoken=a("p",{class:"said"}),this.panes=(n===null?[e]:[e,n]).map(c=>this.makePane(c)),this.textSide=a("div",{class:"textside"}),this.panel=
n===null?new ee(e):null,this.top=en(e,n),this.strip=new ve(e,this.text),this.compare=this.compareControl();let o=this.panel?.element??Gs(e,n),i=a("div",{class:"\
panes"},this.panes.map(c=>c.box)),r=a("div",{class:"mapside"},this.controls(),i,this.textSide),l=a("div",{class:n===null?"scene":"scene both"},r,o);this.element=
a("div",{class:"headview"},this.top,l,this.strip.element)}makePane(t){let e=a("p",{class:"cellnote"}),n=a("canvas",{class:"profile","aria-hidden":"true"}),o=new Ft(
{point:h=>{this.cell=h,this.aim(h&&h[this.looks?0:1])},pick:h=>this.pin(h[this.looks?0:1]),drawn:()=>this.drawProfiles()}),i=(h,u,p)=>a("button",{type:"button",
"aria-label":p,onclick:u},h),r=a("div",{class:"zoom"});r.append(i("+",()=>o.zoom(1.6),"Zoom in"),i("−",()=>o.zoom(1/1.6),"Zoom out"),i("Whole map",()=>o.showAll(),
"Whole map"),i("PNG",()=>o.savePng(),"Download the map as PNG"));let l=this.second===null?null:a("h3",{},`${d.heads[t]} `,a("small",{},Q(t))),c=a("div",{class:"\
under"},Qo(),r,e);return{head:t,map:null,view:o,profile:n,note:e,box:a("div",{class:"pane"},l,o.box,n,c)}}compareControl(){let t=F("most_similar",this.head),{site:e}=v[this.
head],n=d.heads.filter((l,c)=>v[c].site===e&&l!==d.heads[this.head]),o=[...new Set([t,...n])].filter(Boolean).map(l=>a("option",{value:l})),i=a("input",{list:"o\
thers",placeholder:t?`e.g. ${t}`:"head",size:"9","aria-label":"Compare with head",autocomplete:"off",onchange:()=>{let l=i.value.trim();$({second:I.has(l)?l:void 0})}});
i.value=this.state.second??"";let r=a("label",{},a("span",{},"Compare with"),i);return a("div",{class:"choice"},r,a("datalist",{id:"others"},o))}controls(){let{
norm:t,hide:e}=this.state;return a("div",{class:"controls"},Wt(this.text),this.compare,Bt("norm-weighted",t==="1",n=>$({norm:n?"1":void 0}),w("norm-weighted")),
Bt("hide delimiters",e==="1",n=>$({hide:n?"1":void 0}),w("hide delimiters")))}async start(){let t=await Promise.all(this.panes.map(e=>ut(this.text,e.head))).catch(
()=>[null]);this.live&&this.showMaps(t)}moveTo(t,e){let{map:n}=this.panes[0],o=n!==null&&!(n instanceof P);return this.second===null&&this.texts&&o&&tn(t)===tn(
this.state)?this.turnTo(t,e):null}async turnTo(t,e){this.state=t,this.head=e,this.turn+=1;let{turn:n}=this,o=setTimeout(()=>n===this.turn&&this.panes[0].view.clear(),
Go),i=await ut(this.text,e).catch(()=>null);if(clearTimeout(o),!this.live||n!==this.turn)return;this.panes[0].head=e;let r=this.panel?.element.querySelector("de\
tails[open]")!==null,[l,c,h]=[new ee(e,r),en(e,null),this.compareControl()];this.panel?.element.replaceWith(l.element),this.top.replaceWith(c),this.compare.replaceWith(
h),Object.assign(this,{panel:l,top:c,compare:h}),this.strip.show(e),this.showMaps([i])}showMaps(t){let{norm:e,hide:n}=this.state;if(!t[0]){this.texts=null;let r=d.
served?"The map of this head did not arrive.":"The map of this head is not in this page.";this.textSide.replaceChildren(a("p",{class:"dim"},r)),this.panes.forEach(
l=>l.box.remove());return}this.panes.forEach((r,l)=>{r.map=t[l]?.reweighted(e==="1",n==="1")??null,r.map&&r.view.show(r.map)});let o=this.panes[0].map,i=this.token===
this.pinned?null:this.token;this.pinned=Z(this.state.row,this.looks?o.queries:o.keys),this.token=i??this.pinned,(this.texts?.rows.sequence!==o.rows||this.texts.
columns.sequence!==o.columns)&&this.makeTexts(o),this.paint(),this.panel?.rows.show(t[0]),this.second===null&&!d.served&&o.queries*o.keys<=Ko&&this.computeAhead()}async computeAhead(){
let{turn:t}=this;for(let e of[[0,1],[1,0],[0,-1],[-1,0]]){if(await se(),!this.live||t!==this.turn)return;await ut(this.text,At(this.head,e)).catch(()=>null)}}stop(){
this.live=!1;for(let{map:t}of this.panes)t instanceof P&&t.cancel()}makeTexts(t){this.token=this.pinned,this.cell=null;let e=(l,c)=>new xt(l,{hover:h=>this.aim(
h),pick:h=>this.pin(h),label:c}),n=e(t.rows,t.square?"Tokens of the text":"Tokens that look"),o=t.square?n:e(t.columns,"Tokens that are looked at");this.texts={
rows:n,columns:o};let i=this.second===null?"Text":`Text, as ${d.heads[this.head]} reads it`,{note:r}=d.texts[this.text];this.textSide.replaceChildren(a("div",{class:"\
texttop"},a("h3",{},i),this.directionControl()),r?a("p",{class:"dim"},W(r)):"",...new Set([n.box,o.box]),this.spoken)}directionControl(){let t=(o,i)=>{let l=a("\
input",{type:"radio",name:"way",value:o,onchange:()=>$({dir:o===zt?void 0:o})});return l.checked=o===zt===this.looks,a("label",{},l,i)},e=a("legend",{class:"qui\
et"},"Direction"),n=[t(zt,"where a token looks"),t(Dt,"who looks at a token")];return a("fieldset",{class:"way"},e,n,w("direction"))}aim(t){this.token=t??this.pinned,
this.paint()}pin(t){this.pinned=this.pinned===t?null:t,this.token=this.pinned,ft({row:this.pinned===null?void 0:String(t)}),this.paint()}paint(){let{texts:t,token:e,
looks:n}=this,o=this.panes[0].map;if(!t||!o)return;for(let c of this.panes)c.map&&(c.view.mark=n?{row:e,column:null}:{row:null,column:e},c.view.draw(),c.note.textContent=
this.cellText(c.map));let i=e===null?null:o.weights(n,e);e!==null&&!i&&this.fetchWeights(e);let[r,l]=n?[t.rows,t.columns]:[t.columns,t.rows];r===l?r.paint(i,e):
(r.paint(null,e),l.paint(i,null)),this.spoken.textContent=this.tokenText(o,i)}fetchWeights(t){clearTimeout(this.timer),this.timer=window.setTimeout(async()=>{if(!this.
live||t!==this.token)return;let e=this.panes.map(({map:n})=>n&&yt(n,this.looks,t));await Promise.all(e).catch(()=>{}),this.live&&t===this.token&&this.panes[0].map?.
weights(this.looks,t)&&this.paint()},this.pinned===t?0:Yo)}cellText(t){if(!this.cell)return" ";let[e,n]=this.cell,o=t.weights(!0,e);return o?`“${S(t.rows.shown[e],
16)}” → “${S(t.columns.shown[n],16)}” ${o[n].toFixed(3)}`:" "}tokenText(t,e){if(this.token===null)return"Point at a token, in the text or on the map; c\
lick to keep it.";let[n,o]=this.looks?[t.rows,t.columns]:[t.columns,t.rows],i=`“${S(n.shown[this.token],24)}”, token ${this.token}`;if(!e)return`${i}: loadi\
ng …`;let r=c=>`“${S(o.shown[c],16)}” ${k(e[c])}`,l=Zt(e,6,.005).map(r).join(", ")||"no token with much weight";return`${i}, ${this.looks?"looks at":"is l\
ooked at by"} ${l}`}drawProfiles(){for(let{map:t,view:e,profile:n}of this.panes){let o=this.token===null||!this.looks?null:t?.weights(!0,this.token)??null;n.style.
visibility=o?"visible":"hidden",o&&Hs(n,o,e.place)}}};function Qo(){let s=Rt(o=>ct(Re(),o)),t=[0,.1,.25,.5,1].map(o=>{let i=a("span",{},String(o));return i.style.
left=`${100*o**y.weight_exponent}%`,i}),e=a("div",{class:"scale"},s,a("div",{class:"ticks","aria-hidden":"true"},t)),n=a("span",{},"attention weight, square-roo\
t scale ",w("weight"));return a("div",{class:"weightbar"},e,n,a("span",{},"reading the map ",w("attention map")))}function en(s,t){let e=(i,r,l)=>{let c=At(s,i),
h=`${l}: ${d.heads[c]}`;return a("a",{href:O(c),class:"step",title:h,"aria-label":h},r)},n=a("span",{class:"steps"});n.append(e([0,-1],"←","previous head"),e(
[0,1],"→","next head"),e([-1,0],"↑","previous layer"),e([1,0],"↓","next layer"));let o=t===null?Cs(s):Ys(s,t);return a("div",{class:"headtop"},a("h2",{},d.
heads[s]),t===null?null:a("span",{class:"beside"},`and ${d.heads[t]}`),T("kind")&&t===null?a("span",{class:"chip"},Ve(s)):null,n,a("a",{href:H(he),class:"back"},
"← All heads"),a("p",{class:"does"},o))}var nn=s=>X("Show",[[zt,"where the token looks"],[Dt,"who looks at the token"]],s?zt:Dt,t=>$({dir:t===zt?void 0:t}),w(
"direction"));function on(s,t){return s==="shares"?Jo(t):s==="kind"?Xo(t):Zo(s)}function Jo(s){let t=y.shares.map(({name:r,colour:l,meaning:c})=>{let h=d.heads.filter((u,p)=>et(
p).some(f=>f.name===r)).length;return a("li",{},ln("share",r,r,l,h,s),a("span",{class:"meaning"},c))}),e=rn().filter(([r])=>r&&!tt(r).length),n=e.length?a("div",
{class:"legend"},an(e,s)):null;return a("div",{},a("p",{class:"legend"},a("b",{},"What decides where a head looks ",w("shares")),a("span",{class:"dim ringhint"},
"Ring: the five shares. Disc: the share that leads, or two."),a("span",{class:"dim tilehint"},"Colour: the share that leads, or two; weaker where it is small.")),
a("ul",{class:"sharelist"},t),n,a("p",{class:"legend hints"},a("span",{class:"ringhint"},cn()),hn(),a("span",{class:"dim"},"Click a share or a kind to list its \
heads.")))}function Xo(s){let t=a("span",{class:"dim"},"Click a kind to list its heads.");return a("div",{class:"legend"},an(rn(),s),cn(),hn(),t)}function rn(){
let s=new Map;for(let t of d.heads.keys()){let e=Ot(q(t));s.set(e,(s.get(e)??0)+1)}return[...s].sort((t,e)=>e[1]-t[1])}function an(s,t){let e=s.map(([n,o])=>a("\
span",{class:"keyhelp"},ln("kind",n,Y(n),me(n),o,t),ge(n)));return[a("b",{},"Kinds of heads ",w("kind")),e]}function ln(s,t,e,n,o,i){let r=a("i",{class:"dot"});
r.style.background=n;let l=i[s]===t,c=()=>$({share:void 0,kind:void 0,[s]:l?void 0:t}),h=a("button",{type:"button",class:"key","aria-pressed":String(l),onclick:c});
return h.append(r,e,a("small",{},String(o))),h}var cn=()=>d.importance?a("span",{class:"dim"},"Larger: more important ",w("importance")):null,hn=()=>ot.size?a("\
span",{class:"dim"},"Hollow: can be pruned ",w("can be pruned")):null;function Zo(s){let{ramp:t,low:e,high:n}=Pe(re(s));if(e>n)return a("p",{class:"legend"});let o=Rt(
r=>ct(t,r)),i=a("span",{class:"dim"},s," ",rt(s));return a("p",{class:"legend"},L(e),o,L(n),i)}var ti=["entropy","max_weight","distance","first","special","previous","next","self","induction","same_token","output_norm","kind_score","driven_score","most_si\
milar_cka"];function ei(){let s=ms(),t=[d.importance??"",...ti].filter(e=>s.includes(e));return[...t,...s.filter(e=>!t.includes(e))]}function si(s){let t=s.map(
e=>[e,e]);return T("kind")&&t.unshift(["kind","kind of head"]),Yt()&&t.unshift(["shares","what decides where it looks"]),t}function ni({share:s,kind:t}){let e=i=>et(
i).some(({name:r})=>r===s),n=i=>Ot(q(i))===t,o=i=>d.heads.some((r,l)=>i(l));return o(e)?{share:s,has:e}:o(n)?{kind:t,has:n}:{has:()=>!0}}function un(s){let t=si(
ei()),e=t.find(([p])=>p===s.color)?.[0]??t[0]?.[0]??"kind",{share:n,kind:o,has:i}=ni(s),r=new fe(e,i),l=a("section",{class:"gridside","aria-label":"Grid of head\
s"});l.append(ii(e,t),r.box,on(e,{share:n,kind:o}),r.note);let c=[...d.heads.keys()].filter(i),h=d.table?a("section",{class:"tableside","aria-label":"Table of h\
eads"}):null,u=c.length;return n!==void 0&&h?.append(dn(`in which ${n} leads`,oi(n),u)),o!==void 0&&h?.append(dn(`of kind “${Y(o)}”`,_e(o),u)),h?.append(Qs(
s,c,e)),{element:a("div",{class:"two"},l,h),start:()=>r.draw(),resize:()=>r.draw()}}var oi=s=>W(tt(s)[0]?.meaning??"");function ii(s,t){let e=Ke({view:"tokens"});
if(!t.length)return a("div",{class:"controls"},e);let n=s==="kind"||s==="shares"?w(s):rt(s);return a("div",{class:"controls"},X("Colour by",t,s,i=>$({color:i,kind:void 0,
share:void 0}),n),e)}function dn(s,t,e){let o=a("button",{type:"button",onclick:()=>$({kind:void 0,share:void 0})},"Show all heads");return a("p",{class:"filter"},
a("b",{},`${G(e,"head")} ${s}`),": ",t," ",o)}var $t=320,Ye={left:66,right:12,top:10,bottom:46},ri=2;function mn(s){let{curve:t,cost:e}=d,n=e?new Je(e):null,o=a("div",{class:"cutview"});if(!t?.curves.length)
return o.append(a("p",{class:"lead"},"The quality without some of the heads was not measured for this page.")),n&&o.append(n.element),{element:o};let i=new Xe(s,
t,n),r=a("p",{class:"lead"},a("b",{},ai(t))," ",w("can be pruned")," ",li(t)),l=a("section",{},i.list);return o.append(r,a("div",{class:"two"},a("section",{class:"\
curveside"},i.element),l)),n&&o.append(n.element),{element:o,start:()=>i.draw(),resize:()=>i.draw()}}var fn=s=>s.heads??s.curves[0].order.length;function ai(s){
let t=wt(s.limit,3);return s.prunable?`${s.prunable} of ${fn(s)} heads can be pruned for less than ${t} of quality.`:`No head can be pruned for less than ${t} o\
f quality.`}function li(s){if(!s.cut)return"Heads are switched off together, the least important first, and the model is measured again. Nothing is refitted her\
e: real pruning (multihead prune) does better.";let t=G(s.fitted??0,"document"),e=`its quality measured on ${s.judged} others`;return`Every point is a pruned mo\
del: its weights were refitted on ${t}, ${e}.`}var Je=class{constructor(t){this.cost=t,this.table=a("div",{class:"scroll wide"});let e=B("What attention costs",
"attention costs"),n=a("p",{class:"dim"},t.title.slice(1).join(" · "));this.element=a("section",{},e,n,this.table),this.show()}show(t){let{heading:e,rows:n}=this.
cost,o=t?.cost,i=o?[e[0],`with ${t.kept} heads`]:e,r=o?n.map(([p,f],m)=>[p,f,o[m]]):n,l=["none",y.format.missing],c=r.filter(([,...p])=>p.some(f=>!l.includes(f))),
h=a("tr",{},a("td"),i.map(p=>a("th",{scope:"col"},p))),u=c.map(([p,...f])=>a("tr",{},a("th",{scope:"row"},p," ",ci(p)),f.map(m=>a("td",{},m))));this.table.replaceChildren(
a("table",{class:"cost"},a("thead",{},h),a("tbody",{},u)))}};function ci(s){let t=`cost: ${s}`;return Object.hasOwn(U,t)?w(s,U[t]):null}var Xe=class{constructor(t,e,n){
this.curve=e,this.costs=n,this.total=fn(e),this.which=Z(t.method,e.curves.length)??0,this.line=e.curves[this.which],this.points=pn(this.line.points);let o=Z(t.gone,
this.total+1)??e.prunable,[i,r]=e.cut?[this.points.length-1,this.nearest(o)]:[this.total,o];this.slider=a("input",{type:"range",min:0,max:i,value:r,"aria-label":"\
heads removed"}),this.slider.addEventListener("input",()=>{ft({gone:String(this.removed)}),this.draw()}),this.canvas=a("canvas",{class:"curve",role:"img","aria-\
label":"Quality lost against heads kept"}),this.frame=a("div",{class:"gridbox"},this.canvas),this.list=a("div",{class:"gone"});let l=a("h3",{},`Quality lost: ${e.
unit} `,w("quality lost")),c=a("label",{class:"slider"},a("span",{},"heads removed"),this.slider);this.element=a("div",{},l,this.frame,c,this.legend())}get removed(){
let t=Number(this.slider.value);return this.curve.cut?this.points[t].gone:t}nearest(t){let e=this.points.map(n=>Math.abs(n.gone-t));return e.indexOf(Math.min(...e))}legend(){
let{curves:t}=this.curve;if(t.length===1)return a("p",{class:"legend dim"},t[0].method," ",w("method"));let e=t.map((n,o)=>{let i=a("i",{class:"dot"});i.style.background=
Ne(o);let r=()=>$({method:String(o),gone:String(this.removed)}),l=String(o===this.which);return a("button",{type:"button",class:"key","aria-pressed":l,onclick:r},
i,n.method)});return a("p",{class:"legend",role:"group","aria-label":"method"},e,w("method"))}lossAt(t){let{points:e}=this,n=e.findIndex(r=>r.gone>=t);if(n<0)return e[e.
length-1].lost;if(n===0||e[n].gone===t)return e[n].lost;let[o,i]=[e[n-1],e[n]];return o.lost+(t-o.gone)/(i.gone-o.gone)*(i.lost-o.lost)}draw(){let{left:t,right:e,
top:n,bottom:o}=Ye,i=Math.min(this.frame.clientWidth||560,720),r=D(this.canvas,i,$t),l=this.curve.curves.flatMap(({points:f})=>f.map(({lost:m})=>Math.min(m,ri))),
[c,h]=[Math.min(0,...l),Math.max(.01,this.curve.limit,...l)],u=f=>t+f/this.total*(i-t-e),p=f=>$t-o-(f-c)/(h-c)*($t-n-o);this.drawAxes(r,i,u,p,c,h),r.save(),r.beginPath(),
r.rect(t,n-4,i-t,$t-n-o+8),r.clip(),this.curve.curves.forEach((f,m)=>{let b=pn(f.points);r.strokeStyle=r.fillStyle=Ne(m),r.lineWidth=m===this.which?2.5:1.2,r.beginPath();
for(let x of b)r.lineTo(u(x.gone),p(x.lost));r.stroke();for(let x of b)r.beginPath(),r.arc(u(x.gone),p(x.lost),3,0,2*Math.PI),r.fill()}),r.restore(),r.strokeStyle=
M("--mark"),r.lineWidth=1.5,Qe(r,u(this.removed),n,u(this.removed),$t-o),this.describe(this.removed)}drawAxes(t,e,n,o,i,r){let{left:l,right:c,bottom:h}=Ye,u=o(this.
curve.limit);t.font=`11px ${z}`,t.fillStyle=M("--dim"),t.strokeStyle=M("--line"),t.lineWidth=1,t.textBaseline="middle";for(let p=0;p<=4;p+=1){let f=i+(r-i)*p/4;
t.textAlign="right",(Math.abs(o(f)-u)>12||p===0)&&t.fillText(`${Math.round(100*f)} %`,l-8,o(f)),Qe(t,l,o(f),e-c,o(f));let m=Math.round(this.total*(4-p)/4);t.textAlign=
p===0?"left":p===4?"right":"center",t.fillText(String(m),n(this.total-m),$t-h+14)}t.textAlign="center",t.fillStyle=M("--ink"),t.font=`600 12px ${z}`,t.fillText(
"heads kept",(l+e-c)/2,$t-8),it(t,"quality lost",8,(Ye.top+$t-h)/2),t.textAlign="right",t.fillText(`${Number((100*this.curve.limit).toPrecision(3))} %`,l-8,u),t.
setLineDash([4,4]),t.strokeStyle=M("--dim"),Qe(t,l,u,e-c,u),t.setLineDash([])}describe(t){let e=this.points.find(u=>u.gone===t),n=e?.heads??this.line.order.slice(
0,t),i=`: ${e?"":"about "}${wt(this.lossAt(t))} of quality lost.`,r=`${G(t,"head")} removed, ${this.total-t} of ${this.total} heads kept`,l=d.sites.map(u=>{let p=n.
filter(m=>Ut(m)===u.label),f=a("td",{class:"few"},`${u.heads-p.length} of ${u.heads}`);return a("tr",{},a("th",{scope:"row"},u.label),f,a("td",{class:"names"},hi(
p)))}),c=["layer","heads kept","removed heads"].map(u=>a("th",{scope:"col"},u)),h=a("table",{class:"gonetable"},a("thead",{},a("tr",{},c)),a("tbody",{},l));this.
list.replaceChildren(a("p",{},a("b",{},r),i),...di(e),a("div",{class:"scroll"},h)),this.costs?.show(e)}},pn=s=>[...s].sort((t,e)=>t.gone-e.gone);function hi(s){
return s.map((t,e)=>{let n=I.get(t);return[e?" ":"",n===void 0?t:a("a",{href:O(n)},t)]})}function di(s){let t=[];if(s?.parameters){let e=d.model.parameters,n=wt(
1-s.parameters/e);t.push(a("p",{},`${Kt(e)} parameters → ${Kt(s.parameters)} (${n} less)`))}if(s?.speed){let{ratio:e,low:n,high:o,batch:i,tokens:r,rounds:l,verdict:c}=s.
speed,h=c==="faster"||c==="slower"?`${L(e)} times as fast`:c,p=`${`${n.toFixed(2)} to ${o.toFixed(2)}`}, ${l} interleaved rounds, ${i} × ${r} tokens`;t.push(a(
"p",{class:"dim"},`The model on this machine: ${h} (${p}).`))}return t}function Qe(s,t,e,n,o){s.beginPath(),s.moveTo(t,e),s.lineTo(n,o),s.stroke()}var ui=10,wn=40,pi=18,mi=760;function gn(s){let t=d.pairs,e=g=>t.measures.find(N=>N.name===g),n=e(s.measure)??e(t.by)??t.measures[0],o=[...new Set(t.heads.map(Ut))],
i=o.find(g=>g===s.scope),r=s.order!=="layer",l=(r?t.order:t.heads.map((g,N)=>N)).filter(g=>i===void 0||Ut(t.heads[g])===i),c=new Ze(t,n,l,s.pick),h=a("ol",{class:"\
toppairs"}),u=[["cluster","similar heads together"],["layer","by layer"]],p=[["all","all layers"],...o.map(g=>[g,g])],f=a("div",{class:"controls"},X("Measure",t.
measures.map(g=>[g.name,vt(g)]),n.name,g=>$({measure:g}),w(vt(n),xe(n))),X("Order",u,r?"cluster":"layer",g=>$({order:g==="layer"?g:void 0})),X("Heads",p,i??"all",
g=>$({scope:g==="all"?void 0:g}))),m=a("section",{class:"groups"},B("Most similar pairs"),h),b=a("section",{class:"pairside"},c.box,c.legend(),c.note),x=a("div",
{class:"two"},b,a("div",{},m,wi(t)));return{element:a("div",{},a("p",{class:"lead"},Ue(n)),f,x),start:async()=>{let g=await ye(n);c.show(g);let N=Us(n,g,l,ui);h.
replaceChildren(...N.map(j=>fi(t,n,j)))},resize:()=>c.draw()}}function fi(s,t,[e,n,o]){let[i,r]=[s.heads[e],s.heads[n]],l=`${vt(t)} ${k(o)}`;return a("li",{},a(
"a",{href:bn(i,r)},`${i} and ${r}`),a("span",{class:"value"},l))}var bn=(s,t)=>H({view:void 0,pick:void 0,...Et(I.get(s)??0),second:t});function wi({groups:s,notes:t}){
let e=i=>i.map((r,l)=>[l?" ":"",a("a",{href:O(I.get(r)??0)},r)]),n=s.length?a("ul",{},s.map(i=>a("li",{},e(i)))):a("p",{class:"dim"},"No two heads are similar e\
nough to form a group."),o=B(`Groups of similar heads (${s.length})`,"group");return a("section",{class:"groups"},o,n,t.map(i=>a("p",{class:"dim"},i)))}var Ze=class{constructor({
heads:t},e,n,o){this.names=n.map(r=>t[r]),this.measure=e,this.order=n,this.picked=o===void 0?-1:this.names.indexOf(o),this.side=wn,this.gutter=40,this.values=null;
let i="Similarity of every two heads; the lists beside it name the most similar.";this.canvas=a("canvas",{class:"pairs",role:"img","aria-label":i}),this.box=a("\
div",{class:"pairbox"},this.canvas),this.note=a("p",{class:"hover"},"Point at a cell for its two heads; click to see them side by side."),this.canvas.addEventListener(
"pointermove",r=>{let l=this.under(r);this.canvas.style.cursor=l?"pointer":"default",l&&this.describe(...l)}),this.canvas.addEventListener("click",r=>{let l=this.
under(r);if(!l)return;let[c,h]=l.map(u=>this.names[u]);location.hash=c===h?O(I.get(c)??0):bn(c,h)})}show(t){this.values=(e,n)=>t(this.order[e],this.order[n]),this.
draw(),this.picked>=0&&this.describe(this.picked,this.picked)}under(t){let[e,n]=lt(t,this.canvas),[o,i]=[Math.floor((e-this.gutter)/this.side),Math.floor((n-this.
gutter)/this.side)],r=this.order.length;return i>=0&&o>=0&&i<r&&o<r?[i,o]:null}describe(t,e){let{values:n,names:o,measure:i}=this;if(!n)return;if(t!==e){this.note.
textContent=`${o[t]} and ${o[e]}: ${vt(i)} ${k(n(t,e))}`;return}let r=te(i)?1:-1,l=o.map((h,u)=>u).filter(h=>h!==t&&!Number.isNaN(n(t,h)));l.sort((h,u)=>r*(n(t,
h)-n(t,u)));let c=l.slice(0,3).map(h=>`${o[h]} ${k(n(t,h))}`);this.note.textContent=`Most similar to ${o[t]}: ${c.join(", ")}`}color(t){return Number.isNaN(t)?M(
"--line"):this.measure.low<0?ct("signed",(t+1)/2):ct("measure",te(this.measure)?1-t:t)}legend(){let{low:t}=this.measure,e=Rt(l=>this.color(t+l*(1-t))),n=l=>a("s\
pan",{class:"dim"},l),o=t<0?["−1, opposite","1, the same"]:["0, unrelated","1, the same"],[i,r]=te(this.measure)?["0, the same","1, nothing in common"]:o;return a(
"p",{class:"legend"},n(i),e,n(r))}draw(){let{values:t,names:e}=this;if(!t)return;let n=e.length,o=D(this.canvas,10,10);o.font=`10px ${z}`,this.gutter=pi+8+Math.
ceil(Math.max(32,...e.map(u=>o.measureText(u).width)));let i=Math.min(this.box.clientWidth||600,mi);this.side=Math.max(1,Math.min(wn,(i-this.gutter)/n));let{side:r,
gutter:l}=this;D(this.canvas,l+r*n,l+r*n);let c=r>12?r-1:r+.5;for(let u=0;u<n;u+=1)for(let p=0;p<n;p+=1)o.fillStyle=this.color(u===p?NaN:t(u,p)),o.fillRect(l+p*
r,l+u*r,c,c);o.font=`600 12px ${z}`,o.fillStyle=M("--ink"),o.textBaseline="middle",o.textAlign="center",o.fillText("head",l+r*n/2,7),it(o,"head",7,l+r*n/2),o.font=
`10px ${z}`;let h=Math.max(1,Math.ceil(13/r));for(let u=0;u<n;u+=h)o.fillStyle=M(u===this.picked?"--ink":"--dim"),o.textAlign="right",o.fillText(e[u],l-4,l+(u+.5)*
r),o.textAlign="left",it(o,e[u],l+(u+.5)*r,l-4);this.picked<0||(o.strokeStyle=M("--mark"),o.lineWidth=1.5,o.strokeRect(l,l+this.picked*r,r*n,r))}};var gi=["before","after"],bi="Point at a square to read its weight; click it to choose its row.",$e=class{constructor(t,e,n="trained model"){this.read=e,this.names=
{before:n,after:"with your switches"},this.title=a("h2",{}),this.said=a("p",{class:"cellnote"}),this.panes=gi.map(r=>{let l=new Ft({point:h=>this.say(r,h),pick:([
h])=>t(h),drawn:()=>{}}),c=a("h3",{},this.names[r]);return{which:r,view:l,name:c,box:a("div",{class:"pane"},c,l.box)}});let[o,i]=this.panes;this.box=a("section",
{class:"maps"},a("div",{class:"inputtop"},this.title,w("attention map")),a("div",{class:"panes"},o.box,i.box),this.said)}update(t,e,n,o){this.title.textContent=
`Where ${t} looks`;for(let{which:i,view:r,box:l}of this.panes){let c=n[i];l.hidden=!c,c&&(r.show(c),r.canvas.setAttribute("aria-label",`Attention map of ${t}, ${this.
names[i]}. ${o}`),r.mark={row:e,column:null},r.draw())}this.say("after",null)}say(t,e){this.said.textContent=e?this.read(t,e):bi}};var Se=["uniform","previous","first"];var kn=s=>Array.from({length:s},(t,e)=>s-e).filter(t=>s%t===0);var yn={uniform:"all words equally",previous:"previous word",first:"first word"},Me=class{constructor(t,e){this.layers=t,this.handlers=e,this.cells=t.map((i,r)=>i.
map((l,c)=>this.cell(l,r,c))),this.bars=t.map((i,r)=>this.bar(r,i.length)),this.pattern=a("select",{"aria-label":"where the chosen head looks"}),this.pattern.append(
a("option",{value:""},"as it was trained"),...Se.map(i=>a("option",{value:i},yn[i]))),this.pattern.addEventListener("change",()=>{let i=Se.find(r=>r===this.pattern.
value)??null;e.pattern?.(this.at[0],this.at[1],i)}),this.patternName=a("span",{});let n=a("div",{class:"choice detail"},a("label",{},this.patternName,this.pattern));
n.append(w("pattern by hand"));let o=t.map((i,r)=>{let l=a("div",{class:"switchrow"},...this.cells[r].map(({box:c})=>c));return l.style.setProperty("--heads",String(
i.length)),a("div",{class:"switchlayer"},this.bars[r].box,l)});this.box=a("div",{class:"switches"},...o,e.pattern?n:null),this.at=[0,0]}cell({name:t,kind:e,label:n},o,i){
let r=a("span",{class:"dot"});e&&(r.style.backgroundColor=Ct(e));let l=a("button",{type:"button",class:"headname","data-head":t,onclick:()=>this.handlers.select(
o,i)},a("b",{},r,t),e?a("small",{},n??e):null),c=a("input",{type:"checkbox","aria-label":`${t} on`,"data-switch":t});c.addEventListener("change",()=>this.handlers.
scale(o,i,c.checked?1:0));let h=a("input",{type:"range",min:0,max:1,step:.05,"aria-label":`strength of ${t}`,"data-scale":t,oninput:()=>{u.textContent=k(Number(
h.value)),this.handlers.scale(o,i,Number(h.value))}}),u=a("span",{class:"strength"});return{box:a("div",{class:"switch"},a("div",{class:"switchtop"},l,c),h,u),choose:l,
on:c,slider:h,value:u}}bar(t,e){let n=a("input",{type:"checkbox","data-merge":t});n.addEventListener("change",()=>this.handlers.merge?.(t,n.checked));let o=a("s\
elect",{"data-share":t});for(let l of kn(e))o.append(a("option",{value:l},String(l)));o.addEventListener("change",()=>this.handlers.share?.(t,Number(o.value)));
let i=t===0;return{box:a("div",{class:"layerbar"},a("b",{},`Layer ${t}`),this.handlers.merge?a("span",{class:"toggle"},a("label",{},n,a("span",{},"one head")),i?
w("one head"):null):null,this.handlers.share?a("span",{class:"choice"},a("label",{},a("span",{},"keys/values"),o),i?w("keys/values"):null):null),merge:n,share:o}}update(t,e,n){
this.at=[e,n],this.cells.forEach((o,i)=>o.forEach(({box:r,choose:l,on:c,slider:h,value:u},p)=>{let{scale:f,pattern:m}=t[i].heads[p];c.checked=f>0,h.value=String(
f),u.textContent=m?yn[m]:k(f),r.classList.toggle("isoff",f===0),r.classList.toggle("changed",f!==1||m!==null),l.setAttribute("aria-pressed",String(i===e&&p===n))})),
this.bars.forEach(({merge:o,share:i},r)=>{o.checked=t[r].merged,i.value=String(t[r].kvHeads)}),this.pattern.value=t[e].heads[n].pattern??"",this.pattern.disabled=
t[e].merged,this.patternName.textContent=`${this.layers[e][n].name} looks`}};function xn(s,...t){let e=[...s.querySelectorAll("button")].findIndex(n=>n===document.activeElement);s.replaceChildren(...t),e>=0&&s.querySelectorAll("button")[e]?.
focus()}var ki=24;function $n(s,t,e="trained model"){return[...s.map(({word:o,before:i,after:r,actual:l})=>a("div",{class:l?"guess actual":"guess","data-word":o},a("spa\
n",{class:"guessed"},o,l?a("small",{}," (in the text)"):null),a("span",{class:"barpair"},Te("before",i),t?Te("after",r):null),a("span",{class:"chance"},vn(i),t?
a("b",{},vn(r)):null))),ts(t,e)]}var ts=(s,t)=>a("p",{class:"dim legendline"},a("span",{class:"swatch before"}),s?` ${t}`:` ${t}: no switch is changed`,s?a("spa\
n",{class:"swatch after"}):null,s?" with your switches":null);function Sn(s,t,e,n){let o=e.slice(0,ki).map(({token:l,text:c})=>a("button",{type:"button",class:"\
suggestion",onclick:()=>n(l)},c)),i=e.length-o.length,r=i>0?a("span",{class:"dim"},` and ${i} more`):"";xn(s,a("p",{},t),...o,r)}var vn=s=>s<.001?"< 0.1 %":wt(
s,s<.01?1:2);function Te(s,t){let e=a("span",{class:`bar ${s}`});return e.style.width=`${Math.max(.5,100*t)}%`,e}var yi=200;function xi(s){let t=new Map;for(let e of s.split(",")){let[n,o]=e.split(":"),[i,r]=[I.get(n),Number(o)];i!==void 0&&o&&r>=0&&r<1&&t.set(i,r)}return t}
var Ae=class{constructor(){this.scales=new Map,this.past=[]}restore(t){t!==void 0&&t!==this.text&&(this.scales=xi(t))}get text(){return[...this.scales].sort(([t],[
e])=>t-e).map(([t,e])=>`${d.heads[t]}:${Number(e.toFixed(2))}`).join(",")}get byName(){return Object.fromEntries([...this.scales].map(([t,e])=>[d.heads[t],e]))}get settings(){
let t=d.sites.map(({heads:e})=>({heads:[],merged:!1,kvHeads:e}));return v.forEach(({site:e},n)=>t[e].heads.push({scale:this.scales.get(n)??1,pattern:null})),t}set(t,e){
let n=new Map(this.scales);n.delete(t),e<1&&n.set(t,e),this.change(n)}reset(){this.scales.size&&this.change(new Map)}change(t){this.past.push(this.scales),this.
past.length>yi&&this.past.shift(),this.scales=t}undo(){this.scales=this.past.pop()??this.scales}};var vi=60,Mn=2048,es=4,ss="unchanged model",$i={next:"This model predicts the next token. The bars show the likeliest tokens after the chosen one.",masked:"This\
 model fills in hidden tokens. The chosen token is hidden from it, and the bars show what it takes it for. For the list, every other token is hidden in turn.",vector:"\
This model has no prediction of words to compare: it turns a text into a vector. The cosine compares the vector with your switches to that of the unchanged mode\
l: 1 is the same direction, 0 an unrelated one."},J=new Ae;function Tn(s){let t=new ns(s);return{element:t.element,start:()=>t.ask(),resize:()=>t.drawMaps(),stop:()=>t.
stop()}}var ns=class{constructor(t){J.restore(t.scale),this.text=Ht(t),this.sequence=d.texts[this.text].sequences[0],this.head=Vt(t)??0,this.token=Z(t.row,this.
sequence.shown.length)??this.lastWord(),this.abort=new AbortController,this.timer=0,this.answer=null,this.maps={before:null,after:null};let e=o=>this.choose(o);
this.tokens=new xt(this.sequence,{hover:()=>{},pick:e,label:"Tokens; choose one"}),this.pair=new $e(e,(o,i)=>this.read(o,i),ss),this.grid=d.heads.length>Mn?null:
this.makeGrid();let n=o=>()=>this.act(o);this.undo=a("button",{type:"button",id:"undo",onclick:n(()=>J.undo())},"Undo"),this.reset=a("button",{type:"button",id:"\
reset",onclick:n(()=>J.reset())},"Reset"),this.title=a("h2",{}),this.meaning=a("p",{class:"dim"}),this.bars=a("div",{class:"predictions"}),this.list=a("div",{class:"\
changes"}),this.fault=a("p",{class:"note",role:"alert"}),this.prediction=a("section",{class:"prediction","aria-label":"prediction","aria-busy":"true"},a("div",{
class:"inputtop"},this.title),this.fault,this.meaning,this.bars,this.list),this.element=this.layout(),this.show()}layout(){let t=`The grid is for up to ${Mn} he\
ads; this model has ${d.heads.length}.`,e=a("section",{class:"heads","aria-label":"heads"},a("div",{class:"inputtop"},a("h2",{},"Heads"),w("switch"),this.undo,this.
reset),this.grid?.box??a("p",{class:"dim"},t)),n="Switch a head off, or scale what it writes, and see what the model does without it. The model itself runs agai\
n after every change.",o=a("div",{class:"controls"},Wt(this.text));o.querySelector("details")?.setAttribute("open",""),o.querySelector("textarea")?.setAttribute(
"rows","2");let i=a("div",{class:"switchview"},a("p",{class:"lead"},n),o,this.tokens.box);return i.append(a("div",{class:"two"},e,this.prediction),this.pair.box),
i.addEventListener("keydown",r=>this.onKey(r)),i}makeGrid(){let t=d.sites.map((e,n)=>Array.from({length:e.heads},(o,i)=>{let r=K[n]+i,l=T("kind")?{kind:q(r),label:Q(
r)}:{};return{name:d.heads[r],...l}}));return new Me(t,{select:(e,n)=>this.act(()=>this.head=K[e]+n),scale:(e,n,o)=>this.act(()=>{this.head=K[e]+n,J.set(this.head,
o)})})}lastWord(){let{special:t}=this.sequence,e=t.lastIndexOf(!1);return e<0?t.length-1:e}choose(t){this.act(()=>this.token=t)}act(t){t(),this.show(),this.abort.
abort(),this.prediction.setAttribute("aria-busy","true"),clearTimeout(this.timer),this.timer=window.setTimeout(()=>this.ask(),vi)}stop(){clearTimeout(this.timer),
this.abort.abort()}show(){let{site:t,head:e}=v[this.head];this.grid?.update(J.settings,t,e),this.undo.disabled=!J.past.length,this.reset.disabled=!J.scales.size,
this.paintText()}paintText(){let{cosines:t}=this.answer??{};t&&J.scales.size?this.tokens.paint(Float32Array.from(t,e=>1-e),null):this.tokens.paint(null,this.token)}async ask(){
this.abort.abort(),this.abort=new AbortController;let{signal:t}=this.abort,{head:e,token:n,text:o}=this;ft({...Et(e),row:String(n),scale:J.text||void 0});let i=d.
heads[e],r=J.scales.size>0,l={text:d.texts[o].at??o,scales:J.byName,token:n};try{let c=await Rs(r?{...l,head:i}:l,t),h=c.map===null?null:await ie(c.map),u=await ut(
o,e).catch(()=>null);if(t.aborted)return;this.answer=c,this.maps={before:u,after:h&&dt.fromCodes(i,this.sequence,h)},this.fault.textContent=""}catch(c){if(Jt(c)||
t.aborted)return;this.answer=null,this.maps={before:null,after:null},this.fault.textContent=c instanceof Error?c.message:String(c)}this.draw(r),this.prediction.
setAttribute("aria-busy","false")}draw(t){let{answer:e}=this;this.bars.replaceChildren(),this.list.replaceChildren();let n=e?.vector?` The vector: ${e.vector}.`:
"";this.meaning.textContent=e?$i[e.reading]+n:"",this.title.textContent=e?this.heading(e):"No prediction",e?.top&&this.drawTop(e,t),e?.cosine!==void 0&&this.drawCosine(
e.cosine,t);let o=e&&t?this.changes(e):[];if(e&&t){let r=this.changeTitle(e,o.length);Sn(this.list,r,o,l=>this.choose(l)),nt(r)}let i=new Set(e?.changed?.map(({
token:r})=>r));this.paintText(),this.tokens.spans.forEach((r,l)=>r.classList.toggle("switched",i.has(this.tokens.from+l))),this.drawMaps()}heading({reading:t}){
let e=`“${this.word(this.token)}”`;return t==="vector"?"The vector of the text":t==="next"?`Next token after ${e}`:`In place of ${e}`}drawTop({top:t=[],actual:e},n){
let o=t.map(({id:i,word:r,before:l,after:c})=>({word:S(r,16),before:l,after:c,actual:i===e}));this.bars.replaceChildren(...$n(o,n,ss))}drawCosine(t,e){let n=(i,r)=>a(
"div",{class:"guess"},a("span",{class:"guessed"},"cosine"),a("span",{class:"barpair"},Te(i,Math.max(0,r))),a("span",{class:"chance"},a("b",{"data-cosine":i},r.toFixed(
es)))),o=e?[n("before",1),n("after",t)]:[n("before",1)];this.bars.replaceChildren(...o,ts(e,ss))}changes({changed:t,cosines:e}){let n=o=>S(this.word(o),20);if(t){
let o=(i,r)=>`${S(i,20)} → ${S(r,20)}`;return t.map(({token:i,before:r,after:l})=>({token:i,text:`${n(i)}: ${o(r,l)}`}))}return(e??[]).map((o,i)=>({token:i,cosine:o,
text:`${n(i)} ${o.toFixed(es)}`})).filter(({cosine:o})=>1-o>=.5*10**-es).sort((o,i)=>o.cosine-i.cosine)}changeTitle({reading:t,shown:e,cosines:n},o){let i=`${o}\
 of ${G(e.length,"token")}`;return t==="vector"?n?o?`The vectors of ${i} turned; the text is shaded by it. Their cosines, the most turned first:`:"No token's ve\
ctor turned.":"This model returns one vector for the whole text.":o?t==="next"?`The likeliest next token changed after ${i}:`:`Another token fills ${i}:`:"The l\
ikeliest token is the same everywhere."}drawMaps(){if(this.pair.box.hidden=!this.maps.before,!this.maps.before)return;this.pair.update(d.heads[this.head],this.token,
this.maps,"The view of this head has the same weights.")}read(t,e){let n=this.maps[t]?.row(e[0])[e[1]],[o,i]=e.map(r=>`“${S(this.word(r),24)}”`);return`${o}\
 looks at ${i} with weight ${k(n)}`}word(t){return this.sequence.shown[t]}onKey(t){t.key.toLowerCase()!=="z"||!(t.ctrlKey||t.metaKey)||t.shiftKey||t.target instanceof
HTMLTextAreaElement||(t.preventDefault(),this.act(()=>J.undo()))}};var An={holds:"✓ holds",fails:"✗ fails","holds only if":"~ conditional"},En=s=>Object.hasOwn(An,s)?An[s]:s;function On(){let{about:s,statements:t}=d.theory,
e=["#","statement","verdict","as computed","as stated"].map(c=>{let h=c==="#"?null:[" ",w(c)];return a("th",{scope:"col"},c,h)}),n=a("tbody",{},t.map(Mi)),o=a("\
table",{class:"theory"},a("thead",{},a("tr",{},e)),n),i=`Statements about multi-head attention from papers and textbooks. Both sides were computed on this model\
: ${Si(t)}. Click a statement for its formula and the result of each layer.`,r={class:"scroll wide",tabindex:"0",role:"region","aria-label":"Statements and verd\
icts"},l=[a("p",{class:"lead"},i),a("p",{class:"dim"},s)];return{element:a("div",{},l,a("div",r,o))}}function Si(s){let t=new Map;for(let{verdict:e}of s)t.set(e,
(t.get(e)??0)+1);return[...t].map(([e,n])=>e==="holds only if"?`${n} ${n===1?"holds":"hold"} under a condition`:e==="holds"||e==="fails"?`${n} ${n===1?e:e.slice(
0,-1)}`:`${n} ${n===1?"has":"have"} ${e}`).join(", ")}function Mi(s){let{id:t,title:e,formula:n,verdict:o,tally:i}=s,r=Object.entries(s.layers),[l,c]=r.find(([,
m])=>m.verdict===o)??r[0],h=s.holds_when.replace(/\.$/,""),u=r.map(([m,b])=>a("tr",{},a("th",{scope:"row"},m),a("td",{},En(b.verdict)),a("td",{},b.lhs),a("td",{},
b.rhs))),p=a("details",{},a("summary",{},e),a("code",{},n),a("p",{},c.because));h&&p.append(a("p",{class:"dim"},`True when ${h}.`)),p.append(a("table",{class:"l\
ayers"},a("tbody",{},u)));let f=i.replace(/^(holds|fails|conditional)/,m=>En(m==="conditional"?"holds only if":m));return a("tr",{class:`verdict ${o.replaceAll(
" ","-")}`,"data-key":t},a("th",{scope:"row"},t),a("td",{class:"statement"},p),a("td",{class:"result"},f),a("td",{title:l},c.lhs),a("td",{},c.rhs))}var Ln=1024;function Cn(s){let t=new os(s,Ht(s)),e=l=>$({hide:l?"1":void 0}),n=Bt("hide delimiters",t.hide,e,w("hide delimiters")),o=a("div",{class:"controls"},
Wt(t.text),nn(t.looks),n),r=a("div",{class:"tokensview"},a("p",{class:"lead"},"Click a token of the text. Each box is a head and shows the token with the larges\
t weight: the darker the box, the larger the weight. Click a box to open its head."),o);return r.append(t.tokens.box,t.spoken,Ti(),t.table),{element:r,start:()=>t.
choose(t.token),stop:()=>t.stop()}}var os=class{constructor(t,e){this.text=e,this.looks=t.dir!==Dt,this.hide=t.hide==="1",this.live=!0,this.turn=0,this.sequence=
d.texts[e].sequences[0];let n=this.sequence.special.findIndex((i,r)=>!i&&r>0);this.token=Z(t.row,this.sequence.shown.length)??Math.max(0,n);let o=i=>{ft({row:String(
i)}),this.choose(i)};this.tokens=new xt(this.sequence,{hover:()=>{},pick:o,label:"Tokens of the text"}),this.spoken=a("p",{class:"said",role:"status"}),this.boxes=
[],this.table=d.heads.length>Ln?Ai():this.makeTable()}makeTable(){let t=1+Math.max(...v.map(l=>l.number)),e=Array.from({length:t},(l,c)=>a("th",{scope:"col"},String(
c))),n=a("td",{class:"corner"},"layer ↓ head →"),o=d.sites.map((l,c)=>{let h=Array.from({length:t},()=>a("td"));for(let u=K[c];u<K[c]+l.heads;u+=1){let p=a(
"a",{href:O(u),"aria-label":d.heads[u]});this.boxes.push(p),h[v[u].number].append(p)}return a("tr",{},a("th",{scope:"row"},l.label),h)}),i=a("table",{class:"tie\
s"},a("thead",{},a("tr",{},n,e)),a("tbody",{},o));return a("div",{class:"scroll wide",tabindex:"0",role:"region","aria-label":"The token with the largest weight\
, for every head"},i)}stop(){this.live=!1}async choose(t){this.token=t,this.turn+=1;let{turn:e,looks:n}=this,o=`“${S(this.sequence.shown[t],40)}”, token ${t}\
.`,i=new Float32Array(this.sequence.shown.length),r=0;this.tokens.paint(null,t);for(let c=0;c<this.boxes.length;c+=1){let h=await It(this.text,c).catch(()=>null);
if(!this.live||e!==this.turn)return;let[u,p]=h?n?[h.rows,h.columns]:[h.columns,h.rows]:[null,null];if(!h||!p||u!==this.sequence)continue;if(h instanceof P&&!n){
this.spoken.textContent=`${o} On a text this long, open a head to see who looks at a token.`;return}n||await h.complete();let f=await yt(h.reweighted(!1,this.hide),
n,t).catch(()=>null);if(!f||!this.live||e!==this.turn)return;if(this.showBox(c,f,p),r+=1,p===this.sequence)for(let m=0;m<i.length;m+=1)i[m]+=f[m]}this.tokens.paint(
i.map(c=>c/Math.max(1,r)),t);let l=n?"where it looks":"who looks at it";this.spoken.textContent=`${o} Shaded: ${l}, the mean over all heads.`}showBox(t,e,n){let o=0;
for(let l=1;l<e.length;l+=1)e[l]>e[o]&&(o=l);let i=this.boxes[t],r=qn(e[o]);i.textContent=S(n.shown[o],7),i.href=H({view:void 0,...Et(t),row:String(this.token)}),
i.title=`${d.heads[t]}: ${S(n.shown[o],60)} ${k(e[o])}`,i.setAttribute("aria-label",i.title),i.style.backgroundColor=In(r),i.classList.toggle("strong",r>55)}},qn=s=>Math.
round(78*s**y.weight_exponent),In=s=>`color-mix(in srgb, var(--shade) ${s}%, transparent)`;function Ti(){let s=[.01,.1,.25,.5,1].map(e=>{let n=a("span",{},String(
e));return n.style.backgroundColor=In(qn(e)),n});return a("p",{class:"shading"},a("span",{class:"steps"},s)," ","largest weight of the head, square-root scale ",
w("shading"))}var Ai=()=>a("p",{class:"dim"},`This view is for up to ${Ln} heads; this model has ${d.heads.length}.`);var Ee=[{key:"heads",title:"Heads",make:un,has:()=>!0},{key:"tokens",title:"Tokens",make:Cn,has:()=>d.texts.length>0},{key:"switches",title:"Switches",make:Tn,has:()=>d.
served&&d.texts.some(Boolean)},{key:"similarity",title:"Similarity",make:gn,has:()=>d.pairs!==null},{key:"pruning",title:"Pruning",make:mn,has:()=>d.curve!==null||
d.cost!==null},{key:"theory",title:"Theory",make:On,has:()=>d.theory!==null}],St=null,is=0;function Ei(s,t){let e=Ee.find(n=>n.key===s.view&&n.has());return e||
(t===null?Ee[0]:null)}async function Oe(){let s=performance.now();is+=1;let t=is,e=ce(),n=Vt(e),o=Ei(e,n),i=!o&&n!==null?St?.moveTo?.(e,n):null,r=o?.key??"head";
i||(St?.stop?.(),St=o||n===null?(o??Ee[0]).make(e):sn(e,n),R("main").replaceChildren(St.element));for(let l of R("views").querySelectorAll("a"))l.href=Rn(l.dataset.
view??"heads",e.text),l.dataset.view===(o?.key??"heads")?l.setAttribute("aria-current","page"):l.removeAttribute("aria-current");document.body.dataset.view=r,await(i??
St?.start?.()),t===is&&(!o&&n!==null&&nt(we(n)),document.body.dataset.ready=`${r} ${location.hash}`,document.body.dataset.took=(performance.now()-s).toFixed(1))}
var Rn=(s,t)=>`#view=${s}${t?`&text=${encodeURIComponent(t)}`:""}`,Oi="This page is incomplete: the run was stopped before everything was measured.";function Li(){
let{notes:s,model:t,version:e,made:n}=d,o=d.stopped?[Oi]:[];R("card").replaceChildren(...Ci()),R("findings").replaceChildren(...o.map(h=>a("p",{class:"finding n\
ote"},h)),...qi());let i=()=>document.documentElement.dataset.theme==="dark"?"light":"dark";R("tools").replaceChildren(a("button",{type:"button",id:"theme",onclick:()=>rs(
i())},"Light / dark"),a("button",{type:"button",onclick:()=>window.print()},"Print"));let l=Ee.filter(h=>h.has()).map(({key:h,title:u})=>a("a",{href:Rn(h),"data\
-view":h},u));R("views").replaceChildren(...l),R("foot").replaceChildren(...[...o,...s].map(h=>a("p",{class:"note"},h)),a("p",{},`multihead ${e}, ${n}. ${t.class}\
. On a head, arrow keys move to other heads and layers, and Esc leads back to all heads. The URL saves this view.`))}function Ci(){let{model:s,corpus:t,sites:e,
heads:n}=d,o=e.reduce((p,f)=>p+f.kv,0),i=new Set(e.map(p=>p.heads)),r=[...i][0],l=i.size===1?`${G(e.length,"layer")} × ${G(r,"head")}`:`${n.length} heads in ${G(
e.length,"layer")}`,c=G(t.documents,"document"),h=t.tokens?`${t.tokens.toLocaleString("en")} tokens in ${c}`:c;return[[Kt(s.parameters),"parameters","parameters"],
[l,"","head"],[String(o),o===n.length?"kv heads, one each":"kv heads","kv heads"],[h,t.name?`of ${S(t.name,60)}`:"","token"]].map(([p,f,m])=>a("span",{},a("b",{},
p),` ${f} `,w(m)))}var Nn={heads:"Show heads →",similarity:"Show similarity →",pruning:"Show pruning →",theory:"Show theory →"};function qi(){return d.findings.
map(({text:s,link:t})=>{let e=new URLSearchParams(t.slice(1)).get("view")??"",n=Object.hasOwn(Nn,e)?Nn[e]:"Show head →",o=a("span",{},Ii(s.replace(/(\d) %/g,"\
$1 %"))),i=a("a",{class:"arrow",href:t,onclick:()=>R("views").scrollIntoView()},n);return a("div",{class:"finding"},o,i)})}function Ii(s){return s.split(/([\w.]*L\d+H\d+)/).
map(t=>{let e=I.get(t);return e===void 0?t:a("a",{href:O(e)},t)})}function rs(s){document.documentElement.dataset.theme=s,As(),St?.stop?.(),St=null,d&&Oe()}function Ni(s){
if(oe(s,"input, select, textarea, .tokens, canvas.grid, [contenteditable]")||s.altKey||s.ctrlKey||s.metaKey||s.shiftKey)return;let t=Vt(ce());if(document.body.dataset.
view!=="head"||t===null)return;s.key==="Escape"&&$(he);let e=le[s.key];e&&(s.preventDefault(),history.replaceState(null,"",O(At(t,e))),Oe())}async function Ri(){
let s=window.matchMedia("(prefers-color-scheme: dark)");if(rs(s.matches?"dark":"light"),s.addEventListener("change",()=>rs(s.matches?"dark":"light")),typeof DecompressionStream>
"u"){R("main").append(a("p",{class:"lead"},"This browser is too old for this page. Use Chrome 111, Safari 16.4, Firefox 113 or a newer one."));return}await ps(),
Li(),Oe(),window.addEventListener("hashchange",()=>location.hash!=="#main"&&Oe()),window.addEventListener("keydown",Ni);let t=0;window.addEventListener("resize",
()=>{clearTimeout(t),t=window.setTimeout(()=>St?.resize?.(),80)})}async function Pi(s,t=0,{norm:e=!1,hide:n=!1}={}){let o=await ut(t,I.get(s)??-1);if(!o||o instanceof
P)return null;let i=o.reweighted(e,n);return Array.from({length:o.queries},(r,l)=>Array.from(i.row(l)))}async function _i(s,t,e=0,{norm:n=!1,hide:o=!1,looks:i=!0}={}){
let l=await(i?It:ut)(e,I.get(s)??-1);return l&&Array.from(await yt(l.reweighted(n,o),i,t))}Object.defineProperty(window,"multihead",{value:Object.freeze({weights:Pi,
row:_i,get data(){return d}})});Ri();})();
