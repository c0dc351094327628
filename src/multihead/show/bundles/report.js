"use strict";(()=>{function R(s){let t=document.getElementById(s);if(!t)throw new Error(`the page has no element #${s}`);return t}function a(s,t={},...e){let o=document.createElement(
s);for(let[n,i]of Object.entries(t))i==null||i===!1||(typeof i=="function"?o.addEventListener(n.slice(2),i):o.setAttribute(n,i===!0?"":String(i)));return ls(o,e),
o}function ls(s,t){for(let e of t)Array.isArray(e)?ls(s,e):e!=null&&s.append(e)}function _(s,t={},...e){let o=document.createElementNS("http://www.w3.org/2000/s\
vg",s);for(let[n,i]of Object.entries(t))o.setAttribute(n,String(i));return o.append(...e),o}function X(s,t,e,o,n,i=[]){let r=a("select",{onchange:()=>o(r.value)}),
l=(c,h)=>{for(let[u,p]of h){let m=a("option",{value:u},p);m.selected=u===e,c.append(m)}};if(l(r,t),i.length){let c=a("optgroup",{label:"more"});l(c,i),r.append(
c)}return a("div",{class:"choice"},a("label",{},a("span",{},s),r),n)}function Bt(s,t,e,o){let n=a("input",{type:"checkbox",onchange:()=>e(n.checked)});return n.
checked=t,a("div",{class:"toggle"},a("label",{},n,a("span",{},s)),o)}function ot(s){R("live").textContent=s}function oe(){return new Promise(s=>{"requestIdleCal\
lback"in window?requestIdleCallback(s,{timeout:500}):setTimeout(s,100)})}function ne(s,t){let e=a("a",{href:URL.createObjectURL(s),download:t});e.click(),setTimeout(
()=>URL.revokeObjectURL(e.href),1e4)}function ct(s,t){let e=t.getBoundingClientRect();return[s.clientX-e.left,s.clientY-e.top]}function ie(s,t){return s.target instanceof
Element?s.target.closest(t):null}var cs=null,hs=Uint8Array;async function re(s){let t=hs.fromBase64?hs.fromBase64(s):Uint8Array.from(atob(s),o=>o.charCodeAt(0)),e=new Response(t).body;return new Uint8Array(
await new Response(e.pipeThrough(new DecompressionStream("deflate-raw"))).arrayBuffer())}async function ds(){let s=R("data"),t=JSON.parse(new TextDecoder().decode(
await re(s.textContent??"")));return s.remove(),t}function At(s){return cs??=(R("lines").textContent??"").split(`
`),re(cs[s])}var wt=s=>new Float32Array(s.buffer,s.byteOffset,s.byteLength/4),Le=s=>new Uint32Array(s.buffer,s.byteOffset,s.byteLength/4),Fo=Float64Array.from({
length:32},(s,t)=>2**((t||1)-25));function us(s){let t=s.length/2,e=new Float32Array(t);for(let o=0;o<t;o+=1){let n=s[o]<<8|s[t+o],i=n>>10&31,r=((i?1024:0)+(n&1023))*
Fo[i];e[o]=n&32768?-r:r}return e}var x;function ps(s){x=s}var d,v=[],N=new Map,G=[],nt=new Set;async function ms(){d=await ds(),ps(d.charts),d.served&&(d.texts=Ho(d.texts)),N=new Map(d.heads.map((s,t)=>[s,t])),v=[],G=[],
d.sites.forEach((s,t)=>{G.push(v.length);for(let e=0;e<s.heads;e+=1)v.push({site:t,head:e,number:Wo(d.heads[v.length])})}),nt=Do()}function Ho(s){let t=[];for(let e of s)
t[e.at??0]=e;return t}var Wo=s=>Number(/H(\d+)$/.exec(s)?.[1]??0),Ut=s=>s.replace(/H\d+$/,"");function Do(){let s=d.curve,t=s?.curves[0];if(!s||!t)return new Set(
[]);let e=t.points.find(o=>o.gone===s.prunable);return new Set(e?.heads??t.order.slice(0,s.prunable))}function E(s){return s&&d.table&&Object.hasOwn(d.table,s)?
d.table[s]:null}var Et=(s,t)=>E(s)?.values[t]??null;function A(s,t){let e=Et(s,t);return typeof e=="number"?e:null}function H(s,t){let e=Et(s,t);return typeof e==
"string"?e:""}var ae=s=>d.heads.map((t,e)=>A(s,e)),fs=()=>Object.keys(d.table??{}).filter(s=>E(s)?.values.some(t=>typeof t=="number"));function ws(s,t){let e=E(
s)?.why??{};return Object.keys(e).find(o=>e[o].includes(d.heads[t]))??""}var q=s=>H("kind",s),gs=s=>[q(s),H("kind_detail",s)].filter(Boolean).join(" "),gt=s=>A(
d.importance,s);function le(s){let t=d.importance?A(`${d.importance}_error`,s):null;return t===null?null:1.96*t}function Ot(s,[t,e]){let o=v[s],n=d.sites.length,
i=(o.site+t+n)%n,r=d.sites[i].heads,l=t?Math.min(o.head,r-1):(o.head+e+r)%r;return G[i]+l}var ce={ArrowLeft:[0,-1],ArrowRight:[0,1],ArrowUp:[-1,0],ArrowDown:[1,
0]};var he=()=>Object.fromEntries(new URLSearchParams(location.hash.slice(1)));function Z(s,t){let e=Number(s);return s!==void 0&&s!==""&&Number.isInteger(e)&&e>=0&&
e<t?e:null}function W(s){return`#${Object.entries({...he(),...s}).filter(([,e])=>e!==void 0&&e!=="").map(([e,o])=>`${e}=${encodeURIComponent(String(o))}`).join(
"&")}`}function S(s){location.hash=W(s)}function kt(s){history.replaceState(null,"",W(s))}function Ct(s){let{site:t,number:e}=v[s],{stack:o,layer:n}=d.sites[t];
return{stack:o||void 0,layer:String(n),head:String(e)}}var C=s=>W({view:void 0,kind:void 0,share:void 0,pick:void 0,second:void 0,...Ct(s)}),de={view:"heads",layer:void 0,
head:void 0,second:void 0,row:void 0};function Vt(s){if(s.layer===void 0||s.head===void 0)return null;let t=v.findIndex(({site:e,number:o})=>{let{layer:n,stack:i}=d.
sites[e];return String(n)===s.layer&&(i||"")===(s.stack||"")&&String(o)===s.head});return t<0?null:t}var ks=s=>s==null||Number.isNaN(s);function L(s,t=x.format.digits){let{missing:e,plain:o}=x.format;if(ks(s))return e;let n=Math.abs(s);return Number.isInteger(s)&&
n<o[1]?String(s):n>=o[1]||n<o[0]?s.toExponential(1).replace("e+","e").replace(".0e","e"):String(Number(s.toPrecision(t)))}function y(s){let{missing:t,fraction_digits:e}=x.
format;return ks(s)?t:s.toFixed(e)}var it=(s,t=2)=>`${L(100*s,t)} %`;function Kt(s){let t=Math.max(0,Math.min(3,Math.floor(Math.log10(Math.max(1,s))/3)));return`${Number(
(s/1e3**t).toPrecision(3))}${[""," k"," M"," G"][t]}`}function M(s,t=24){let e=Array.from(s);return e.length<=t?s:`${e.slice(0,t-1).join("")}…`}var P=s=>s?`${s[0].
toUpperCase()}${s.slice(1)}${/[.!?]$/.test(s)?"":"."}`:"",Y=(s,t)=>`${s} ${t}${s===1?"":"s"}`;var zo=16,D="system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif",It=()=>window.devicePixelRatio||1;function Gt(s){let t=s.getContext("2d");if(!t)throw new Error(
"this browser draws no canvas");return t}function z(s,t,e){let o=It(),[n,i]=[Math.max(1,Math.round(t*o)),Math.max(1,Math.round(e*o))],r=Gt(s);return s.width===n&&
s.height===i&&s.style.width&&"reset"in r?r.reset():(s.width=n,s.height=i,s.style.width=`${t}px`,s.style.height=`${e}px`),r.setTransform(o,0,0,o,0,0),r}function Rt(s,t=160){
let e=a("canvas",{class:"bar","aria-hidden":"true"}),o=z(e,t,10);for(let n=0;n<t;n+=1)o.fillStyle=s(n/(t-1)),o.fillRect(n,0,1,10);return e}function rt(s,t,e,o){
s.save(),s.translate(e,o),s.rotate(-Math.PI/2),s.fillText(t,0,0),s.restore()}var bs=()=>parseFloat(getComputedStyle(document.documentElement).fontSize)/zo;var ys=s=>Object.hasOwn(d.kind_texts,s)?d.kind_texts[s]:null,B=s=>ys(s)?.label??s,ue=s=>ys(s)?.sentence??"";var Ne=20,xs=.4,pe=2*Math.PI;function vs(s,{color:t,size:e=.6,hollow:o},n,i,r){let[l,c]=x.size,h=Math.max(1.2,r/2*(l+(c-l)*e));s.beginPath(),s.arc(n+r/2,i+r/2,h,
0,pe),s.lineWidth=Math.max(1,Math.min(2.5,r/12)),s.strokeStyle=s.fillStyle=t,o?s.stroke():s.fill()}function Bo(s,{color:t},e,o,n){let i=$s(n);s.fillStyle=t,s.fillRect(
e+i,o+i,n-2*i,n-2*i)}function Uo(s,t,e,o,n){t.parts?n<Ne?Ko(s,t,e,o,n):Vo(s,t,e,o,n):vs(s,{...t,size:.2},e,o,n)}function Vo(s,{parts:t=[],leading:e=[],size:o=1,
hollow:n},i,r,l){let{size:[c,h],hole:u,centre:p}=x.ring,m=l/2*(c+(h-c)*o),[f,k]=[i+l/2,r+l/2],b=(F,st,K)=>{s.beginPath(),s.arc(f,k,F,pe*(st-.25),pe*(K-.25))},O=m*
(1-u),T=.6/(pe*(m-O/2)),g=0;s.lineWidth=O,t.forEach((F,st)=>{let K=g+F,lt=F>3*T&&F<1?T:0;s.strokeStyle=x.shares[st].colour,b(m-O/2,g+lt,K-lt),F>0&&s.stroke(),g=
K}),s.lineWidth=Math.max(1.2,m/9);let I=m*p-(n?s.lineWidth/2:0);e.forEach(({colour:F},st)=>{s.strokeStyle=s.fillStyle=F;let[K,lt]=[.5+st/e.length,.5+(st+1)/e.length];
b(I,K,lt),n?s.stroke():s.fill()})}function Ko(s,{parts:t=[],leading:e=[],hollow:o},n,i,r){let l=$s(r),c=r-2*l,h=Math.max(1,r/8),u=x.shares.map(({name:f})=>f),p=e.
reduce((f,{name:k})=>f+t[u.indexOf(k)],0),m=s.globalAlpha;s.globalAlpha=m*(xs+(1-xs)*Math.sqrt(Math.max(0,Math.min(1,p)))),s.lineWidth=h,e.forEach(({colour:f},k)=>{
let b=c/e.length,[O,T]=[n+l+k*b,i+l];s.strokeStyle=s.fillStyle=f,o?s.strokeRect(O+h/2,T+h/2,b-h,c-h):s.fillRect(O,T,b,c)}),s.globalAlpha=m}var $s=s=>s>12?1.5:.5,
Ss={dot:vs,square:Bo,shares:Uo};var ht=s=>s.split(",")[0];function tt(s){let t=ht(s).split(" + ");return x.shares.filter(({name:e})=>t.includes(e))}var Lt=256;function bt(s){let{kinds:t,no_value:e}=x;return Object.hasOwn(t,s)?t[s]:tt(s)[0]?.colour??e}function fe(s){let[t,e]=tt(s);return e?`linear-gradient(9\
0deg, ${t.colour} 50%, ${e.colour} 50%)`:bt(s)}var Re=s=>x.lines[s%x.lines.length],Go=s=>[1,3,5].map(t=>parseInt(s.slice(t,t+2),16));function Yo(s){let t=s.map(
Go),e=new Uint8Array(3*Lt);for(let o=0;o<Lt;o+=1){let n=o/(Lt-1)*(t.length-1),i=Math.min(t.length-2,Math.floor(n));for(let r=0;r<3;r+=1)e[3*o+r]=Math.round(t[i][r]+
(n-i)*(t[i+1][r]-t[i][r]))}return e}var Ms=new Map;function Ts(s){let t=Ms.get(s);return t||(t=Yo(x.ramps[s]),Ms.set(s,t)),t}var Pe=()=>document.documentElement.
dataset.theme==="dark"?"weight-dark":"weight";function dt(s,t){let e=Ts(s),o=3*Math.max(0,Math.min(Lt-1,Math.round(t*(Lt-1))));return`rgb(${e[o]} ${e[o+1]} ${e[o+2]})`}var Ie=new Map,me=null;function $(s){let t=Ie.
get(s);return t===void 0&&(t=getComputedStyle(document.documentElement).getPropertyValue(s).trim(),Ie.set(s,t)),t}function As(){if(!me){let s=Ts(Pe()),t=new Uint8Array(
4*Lt).fill(255);for(let e=0;e<Lt;e+=1)t.set(s.subarray(3*e,3*e+3),4*e);me=new Uint32Array(t.buffer)}return me}function Es(){me=null,Ie.clear()}function ut(s){if(!H("leading",s))return null;let t=x.shares.map(({name:e})=>A(e,s));return t.includes(null)?null:t}var Yt=()=>d.heads.some((s,t)=>ut(t)!==null),
et=s=>tt(H("leading",s));function Os(s){let t=et(s).map(({one:e})=>e);return t.length?`This head ${t.join("; it also ")}.`:""}var yt=62,Pt=40,Cs=46,Qo=5;function Jo(s,t){if(s==="shares"||s==="kind"){let r=d.heads.map((h,u)=>gt(u)),[,l]=Ls(r),c=s==="shares"?1:.6;return h=>({shape:s==="s\
hares"?"shares":"dot",color:bt(q(h)),size:l>0?Math.sqrt(Math.max(r[h]??0,0)/l):c,hollow:nt.has(d.heads[h]),faded:!t(h),parts:ut(h)??void 0,leading:et(h)})}let e=ae(
s),{ramp:o,low:n,high:i}=je(e);return r=>{let l=e[r];return{shape:"square",color:l===null?$("--line"):dt(o,i>n?(l-n)/(i-n):.5)}}}function je(s){let[t,e]=Ls(s),o=Math.
max(-t,e);return t<0&&e>0?{ramp:"signed",low:-o,high:o}:{ramp:"measure",low:t,high:e}}function Ls(s){let[t,e]=[1/0,-1/0];for(let o of s)o!==null&&o<t&&(t=o),o!==
null&&o>e&&(e=o);return[t,e]}var we=class{constructor(t,e){this.by=t,this.chosen=e,this.columns=1+Math.max(...v.map(o=>o.number)),this.headAt=new Map(v.map(({site:o,
number:n},i)=>[`${o} ${n}`,i])),this.side=Cs,this.picked=0,this.hovered=null,this.canvas=a("canvas",{tabindex:"0",role:"application",class:"grid","aria-label":"\
Grid of heads, layers down, heads across. Arrow keys move, Enter opens the head."}),this.note=a("p",{class:"hover","aria-hidden":"true"}),this.box=a("div",{class:"\
gridbox"},this.canvas),this.canvas.addEventListener("pointermove",o=>this.hover(this.under(o))),this.canvas.addEventListener("pointerleave",()=>this.hover(null)),
this.canvas.addEventListener("click",o=>{let n=this.under(o);n!==null&&(location.hash=C(n))}),this.canvas.addEventListener("keydown",o=>this.onKey(o)),this.canvas.
addEventListener("focus",()=>this.draw()),this.canvas.addEventListener("blur",()=>this.draw()),this.describe(null)}under(t){let[e,o]=ct(t,this.canvas),[n,i]=[Math.
floor((o-Pt)/this.side),Math.floor((e-yt)/this.side)];return this.headAt.get(`${n} ${i}`)??null}hover(t){t!==this.hovered&&(this.hovered=t,this.canvas.style.cursor=
t===null?"default":"pointer",this.draw(),this.describe(t))}describe(t){let e="Point at a head for its numbers; click to open it.";this.note.textContent=t===null?
e:ge(t,this.by)}onKey(t){t.key==="Enter"&&(location.hash=C(this.picked));let e=ce[t.key];e&&(t.preventDefault(),t.stopPropagation(),this.picked=Ot(this.picked,e),
this.draw(),this.describe(this.picked),ot(ge(this.picked,this.by)))}draw(){let t=d.sites.length,e=((this.box.clientWidth||600)-yt)/this.columns;this.side=Math.max(
Qo,Math.min(Cs,e>12?Math.floor(e):e)),this.box.parentElement&&(this.box.parentElement.dataset.mark=this.side<Ne?"tile":"ring");let[o,n]=[this.side*this.columns,
this.side*t],i=z(this.canvas,yt+o,Pt+n+2);this.drawAxes(i,o,n);let r=Jo(this.by,this.chosen),l=document.activeElement===this.canvas?this.picked:null;v.forEach(({
site:c,number:h},u)=>{let[p,m]=[yt+h*this.side,Pt+c*this.side],f=r(u);i.globalAlpha=f.faded?.16:1,Ss[f.shape](i,f,p,m,this.side),i.globalAlpha=1,!(u!==this.hovered&&
u!==l)&&(i.strokeStyle=$("--ink"),i.lineWidth=1.5,i.strokeRect(p+.75,m+.75,this.side-1.5,this.side-1.5))})}drawAxes(t,e,o){t.font=`600 12px ${D}`,t.fillStyle=$(
"--ink"),t.textBaseline="middle",t.textAlign="center",t.fillText("head",yt+Math.min(e,this.box.clientWidth-yt)/2,8),rt(t,"layer",8,Pt+o/2),t.font=`11px ${D}`,t.
fillStyle=$("--dim");let n=Math.max(1,Math.ceil(18/this.side));for(let r=0;r<this.columns;r+=n)t.fillText(String(r),yt+(r+.5)*this.side,Pt-11);t.textAlign="righ\
t";let i=d.sites.length>40||this.side<14;d.sites.forEach(({label:r,layer:l},c)=>{if(c%n)return;let h=i?String(l):r.replace(/^(enc|dec)oder\./,"$1.");t.fillText(
h,yt-8,Pt+(c+.5)*this.side)})}};function ge(s,t){let e=[d.heads[s]];if(E("kind")){let r=A("kind_score",s),l=ht(q(s))===q(s);e.push(`${Q(s)}${r===null||!l?"":` ${y(
r)}`}`)}let o=ut(s);o&&e.push(x.shares.map(({name:r},l)=>`${r} ${y(o[l])}`).join(", ")),d.importance&&e.push(`importance ${L(gt(s),2)}`);let n=H("most_similar",
s);n&&e.push(`most similar ${n} ${y(A("most_similar_cka",s))}`);let i=t==="kind"||t==="shares"||t===d.importance?null:E(t);return t&&i&&e.push(`${t} ${L(A(t,s))}`),
nt.has(d.heads[s])&&e.push("can be pruned"),e.join(" · ")}var Q=s=>[B(q(s)),H("kind_detail",s)].filter(Boolean).join(" "),qs=s=>ue(q(s))||Os(s);var V={head:"A head looks at every token of a text and mixes some of them into each token. A layer has several heads, each with its own weights. L3H7 is head 7 \
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
l."};var xt=a("div",{id:"definition",role:"note",hidden:!0}),vt=null;function Qt(){vt?.setAttribute("aria-expanded","false"),vt=null,xt.hidden=!0}function Xo(s,t,e){
Qt(),vt=s,s.setAttribute("aria-expanded","true"),xt.replaceChildren(a("b",{},t),a("p",{},e)),document.body.append(xt),xt.hidden=!1;let o=s.getBoundingClientRect(),
{width:n,height:i}=xt.getBoundingClientRect(),r=Math.max(8,Math.min(o.left-12,document.documentElement.clientWidth-n-8)),l=o.bottom+6+i<=window.innerHeight||o.top<
i+6;xt.style.left=`${r+window.scrollX}px`,xt.style.top=`${(l?o.bottom+6:o.top-i-6)+window.scrollY}px`,ot(`${t}: ${e}`)}document.addEventListener("pointerdown",s=>{
let t=s.target;vt&&!xt.contains(t)&&!vt.contains(t)&&Qt()});window.addEventListener("hashchange",Qt);document.addEventListener("keydown",s=>{s.key!=="Escape"||!vt||
(s.stopPropagation(),vt.focus(),Qt())},{capture:!0});function w(s,t=V[s]){let e=a("button",{type:"button",class:"help","aria-label":`What is ${s}?`,"aria-expand\
ed":"false",onclick:o=>{o.preventDefault(),o.stopPropagation(),vt===e?Qt():Xo(e,s,t)}});return e.textContent="?",e}var U=(s,t=s.toLowerCase())=>a("h3",{},s," ",
w(t));function at(s){let t=E(s),e=Object.hasOwn(V,s)?V[s]:s===d.importance?V.importance:"",o=t?`${P(t.meaning)}${t.unit?` Unit: ${t.unit}.`:""}`:"";return w(s,[e,o].filter(
Boolean).join(" "))}function ke(s){return w(B(s),Jt(s))}function Jt(s){let t=Object.hasOwn(d.kinds,s)?d.kinds[s]:null,e=t?`${P(t.meaning)} Its score must be abo\
ve ${t.threshold} and above chance.`:"";return[...tt(s).map(({name:n,meaning:i})=>P(`${n}: ${i}`)),ue(s),e].filter(Boolean).join(" ")}function Zo({q:s,k:t,dim:e},o,n,i,r){let l=o*e,c=l+e,h=n;for(;h+3<i;h+=4){let[u,p,m,f]=[0,0,0,0];for(let k=l,b=h*e;k<c;k+=1,b+=1){let O=s[k];u+=O*t[b],p+=O*t[b+
e],m+=O*t[b+2*e],f+=O*t[b+3*e]}r[h]=u,r[h+1]=p,r[h+2]=m,r[h+3]=f}for(;h<i;h+=1){let u=0;for(let p=l,m=h*e;p<c;p+=1,m+=1)u+=s[p]*t[m];r[h]=u}}function Ns(s,t,e){
let{bias:o,softcap:n,sink:i}=s,[r,l,c]=[s.first[t],s.end[t],s.first.length-1-t];e.fill(0),Zo(s,t,r,l,e);let h=i===void 0?-1/0:i;for(let p=r;p<l;p+=1)n!==void 0&&
(e[p]=n*Math.tanh(e[p]/n)),o&&(e[p]+=o[p+c]),e[p]>h&&(h=e[p]);let u=i===void 0?0:Math.exp(i-h);for(let p=r;p<l;p+=1)e[p]=Math.exp(e[p]-h),u+=e[p];for(let p=r;p<
l;p+=1)e[p]/=u;return e}var tn=40,en=()=>new Promise(s=>setTimeout(s)),_e=s=>255*Math.sqrt(s)+.5,pt=class s{constructor(t,e,o){this.name=t,this.queries=o.queries,this.keys=o.keys,this.
rows=e.sequences[o.rows],this.columns=e.sequences[o.columns],this.square=o.rows===o.columns,this.coded=null,this.qk=null,this.norms=null,this.completing=null}static async read(t,e,o,n,i){
let r=new s(t,e,o);return n.map!==void 0?r.coded=await At(n.map):r.qk=await sn(n),o.norms!==null&&(r.norms=wt(await At(o.norms)).subarray(i*o.keys,(i+1)*o.keys)),
r}static fromWeights(t,e,o){let n=e.shown.length,i={label:"",queries:n,keys:n,rows:0,columns:0,norms:null,heads:[]};return s.fromCodes(t,{sequences:[e]},i,Uint8Array.
from(o,_e))}static fromCodes(t,e,o,n){let i=new s(t,e,o);return i.coded=n,i}complete(){return this.completing??=this.computeAll(),this.completing}async computeAll(){
if(this.coded)return;let t=new Uint8Array(this.queries*this.keys),e=performance.now();for(let o=0;o<this.queries;o+=1){let n=this.row(o);for(let i=0,r=o*this.keys;i<
this.keys;i+=1)t[r+i]=_e(n[i]);performance.now()-e>tn&&(await en(),e=performance.now())}this.coded=t}get bytes(){return(this.coded?.length??0)+(this.qk?4*(this.
qk.q.length+this.qk.k.length):0)}row(t){let e=new Float32Array(this.keys);if(this.qk)return Ns(this.qk,t,e);if(this.coded)for(let o=0;o<this.keys;o+=1)e[o]=(this.
coded[t*this.keys+o]/255)**2;return e}column(t){let e=new Float32Array(this.queries),o=this.coded;if(o)for(let n=0;n<this.queries;n+=1)e[n]=(o[n*this.keys+t]/255)**
2;return e}weights(t,e){return t?this.row(e):this.column(e)}async preview(t){if(this.coded)return{coded:this.coded,queries:this.queries,keys:this.keys};let e=Math.
min(t,this.queries),o=new Uint8Array(e*this.keys);for(let n=0;n<e;n+=1){let i=this.row(Math.floor((n+.5)*this.queries/e));for(let r=0;r<this.keys;r+=1)o[n*this.
keys+r]=_e(i[r])}return{coded:o,queries:e,keys:this.keys}}reweighted(t,e){let o=t?this.norms:null,n=e&&this.columns.special.some(Boolean);if(!o&&!n)return this;
let i=new Float32Array(this.keys).fill(1);for(let l=0;l<this.keys;l+=1)o&&(i[l]=o[l]),n&&this.columns.special[l]&&(i[l]=0);let r=Object.create(this);return r.row=
l=>on(this.row(l),i),this.coded&&(r.coded=nn(this.coded,this.queries,this.keys,i)),r}};async function sn(s){let{q:t,k:e,first:o,end:n,dim:i}=s,r=await Promise.all(
[t,e,o,n].map(At)),l=s.wide?wt:us;return{q:l(r[0]),k:l(r[1]),first:Le(r[2]),end:Le(r[3]),dim:i,bias:s.bias===void 0?null:wt(await At(s.bias)),softcap:s.softcap,
sink:s.sink}}function on(s,t){let e=0;for(let o=0;o<s.length;o+=1)s[o]*=t[o],e+=s[o];if(e>0)for(let o=0;o<s.length;o+=1)s[o]/=e;return s}function nn(s,t,e,o){let n=new Uint8Array(
s.length);for(let i=0;i<t;i+=1){let r=i*e,l=0;for(let c=0;c<e;c+=1)l+=s[r+c]**2*o[c];if(l!==0)for(let c=0;c<e;c+=1)n[r+c]=Math.round(s[r+c]*Math.sqrt(o[c]/l*255*
255))}return n}function be(s){R("trouble").textContent=s,R("trouble").hidden=!s}async function Is(s,t){try{return await fetch(s,{...t,cache:"no-store"})}catch(e){throw Xt(e)||
be("The server does not answer. Is multihead serve still running?"),e}}async function Fe(s,t,e){let o=Object.entries(t).map(([i,r])=>[i,String(r)]),n=await Is(`${s}\
?${new URLSearchParams(o)}`,{signal:e});if(!n.ok){let i=await n.text();throw be(i),new Error(i)}return be(""),n}async function qt(s,t,e){let o=await Fe(s,t,e);return new Uint8Array(
await o.arrayBuffer())}var Xt=s=>s instanceof DOMException&&s.name==="AbortError";async function Rs(s){let t={"Content-Type":"application/json"},e=await fetch("\
text",{method:"POST",body:JSON.stringify(s),headers:t});if(!e.ok)throw new Error(await e.text());return e.json()}async function Ps(s,t){let e={"Content-Type":"a\
pplication/json"},o=await Is("switches",{method:"POST",body:JSON.stringify(s),headers:e,signal:t});if(!o.ok)throw new Error(await o.text());return be(""),o.json()}var js=4096,rn=256,an=120,j=class s extends pt{constructor(t,e,o,n){super(t,e,o),this.where=n,this.lines=new Map,this.overview=null,this.latest=null,this.asking=
null,this.controller=null,this.timer=0,this.variants=new Map,this.source=[t,e,o]}complete(){return Promise.resolve()}get bytes(){return 4*this.keys*this.lines.size+
2e6}reweighted(t,e){if(!t&&!e)return this;let o=`${t} ${e}`,n=this.variants.get(o);if(!n){let i={...this.where,...t?{norm:1}:{},...e?{hide:1}:{}};n=new s(...this.
source,i),this.variants.set(o,n)}return n}weights(t,e){return this.lines.get(`${t?"row":"column"} ${e}`)??null}async fetchWeights(t,e){let o=this.weights(t,e);if(o)
return o;let n=t?"row":"column",i=wt(await qt(n,{...this.where,i:e}));return this.lines.size>=rn&&this.lines.delete(this.lines.keys().next().value??""),this.lines.
set(`${n} ${e}`,i),i}picture(t,e,o,n){let[i,r]=[Math.floor(t.x),Math.floor(t.y)],l=Math.min(this.keys,Math.ceil(t.x+t.w-1e-9))-i,c=Math.min(this.queries,Math.ceil(
t.y+t.h-1e-9))-r,h={width:Math.min(l,e,js),height:Math.min(c,o,js)},u={x:i,y:r,w:l,h:c,...h},p=Object.values(u).join(" ");return this.latest?.key===p?this.latest:
this.overview?.key===p?this.overview:(this.asking!==p&&(this.cancel(),this.asking=p,this.timer=window.setTimeout(()=>this.fetchPicture(u,p,n),this.overview?an:0)),
this.overview)}async fetchPicture(t,e,o){this.controller=new AbortController;try{let n=await qt("map",{...this.where,...t},this.controller.signal);this.latest={
key:e,part:t,coded:n,keys:t.width,queries:t.height},t.w===this.keys&&t.h===this.queries&&(this.overview=this.latest),this.asking=null,o()}catch(n){this.asking===
e&&(this.asking=null),Xt(n)||ot(String(n))}}cancel(){clearTimeout(this.timer),this.controller?.abort(),this.asking=null}async preview(t){let[e,o]=[Math.min(t,this.
keys),Math.min(t,this.queries)],n={x:0,y:0,w:this.keys,h:this.queries,width:e,height:o,thin:1};return{coded:await qt("map",{...this.where,...n}),keys:e,queries:o}}};
function _s({part:s,keys:t,queries:e},o){let[n,i]=[t/s.w,e/s.h];return{x:(o.x-s.x)*n,y:(o.y-s.y)*i,w:o.w*n,h:o.h*i}}var ln=96e6,cn=2048,jt=new Map,He=new Map;async function Nt(s,t){let e=`${s} ${t}`,o=jt.get(e);if(o)return We(e,o),o;let n=v[t],i=n&&d.texts[s]?.layers[n.site],
r=i?.heads[n.head];if(!i||!r)return null;let l=He.get(e);l||(l=r.served?hn(s,t):pt.read(d.heads[t],d.texts[s],i,r,n.head),He.set(e,l));try{let c=await l;return We(
e,c),c}finally{He.delete(e)}}async function mt(s,t){let e=await Nt(s,t);return e&&!e.coded&&(await e.complete(),We(`${s} ${t}`,e)),e}function We(s,t){jt.delete(
s),jt.set(s,t);let e=0;for(let o of jt.values())e+=o.bytes;for(let[o,n]of jt){if(e<=ln||o===s)break;jt.delete(o),e-=n.bytes}}async function hn(s,t){let e=d.texts[s],
o=v[t],n=e.layers[o.site],i={text:s,layer:n.label,head:o.head},{queries:r,keys:l}=n;if(Math.max(r,l)>cn)return new j(d.heads[t],e,n,i);let c=new pt(d.heads[t],e,
n),h={x:0,y:0,w:l,h:r,width:l,height:r},[u,p]=await Promise.all([qt("map",{...i,...h}),qt("norms",i)]);return c.coded=u,c.norms=wt(p),c}async function $t(s,t,e){
return s instanceof j?s.fetchWeights(t,e):t?s.row(e):(await s.complete(),s.column(e))}function Fs(s,t,e,o){let n=new Int32Array(o+1);for(let i=0;i<=o;i+=1)n[i]=Math.min(e,Math.floor(s+i/o*t+1e-9));return n}function De({coded:s,keys:t,queries:e},o,n,i){
let r=As(),l=new ImageData(n,i),c=new Uint32Array(l.data.buffer),h=Fs(o.x,o.w,t,n),u=Fs(o.y,o.h,e,i),p=new Uint8Array(n),m=-1;for(let f=0;f<i;f+=1){let[k,b]=[u[f],
Math.max(u[f]+1,u[f+1])],O=k===m&&b===k+1,T=f*n;if(O){c.copyWithin(T,T-n,T);continue}p.fill(0);for(let g=k;g<b&&g<e;g+=1)for(let I=0,F=g*t;I<n;I+=1){let st=Math.
min(t,Math.max(h[I]+1,h[I+1])),K=p[I];for(let lt=h[I];lt<st;lt+=1)s[F+lt]>K&&(K=s[F+lt]);p[I]=K}m=b===k+1?k:-1;for(let g=0;g<n;g+=1)c[T+g]=r[p[g]]}return l}async function Hs(s,t){
let e=a("canvas",{class:"thumb","aria-hidden":"true"});z(e,t,t);let o=Math.round(t*It()),n=await s.preview(o),i={x:0,y:0,w:n.keys,h:n.queries};return Gt(e).putImageData(
De(n,i,o,o),0,0),e}var ze=s=>s.reduce((t,e)=>e>t?e:t,0),Zt=56;function Ws(s,t,{left:e,width:o,window:n}){let i=z(s,e+o,Zt),r=Math.max(1e-9,ze(t)),l=o/n.w;i.fillStyle=
$("--dim"),i.font=`11px ${D}`,i.textAlign="right",i.textBaseline="top",i.fillText(y(r),e-6,2),i.textBaseline="bottom",i.fillText("0",e-6,Zt-2),i.fillStyle=$("--\
line"),i.fillRect(e,Zt-1,o,1),i.fillStyle=$("--accent");let c=Math.min(t.length,n.x+n.w);for(let h=Math.floor(n.x);h<c;h+=1){let u=t[h]/r*(Zt-8),p=e+(h-n.x)*l;p+
l<=e||u<=.2||i.fillRect(Math.max(e,p),Zt-1-u,Math.max(1,l-(l>4?1:0)),u)}}var dn=5,un=.04,_t=2e3,ft=class{constructor(t,{hover:e,pick:o,label:n}){this.sequence=t,this.from=0,this.spans=[],this.shades=new Int8Array(0),this.marked=null,
this.painted=[null,null],this.arcs=_("svg",{class:"arcs","aria-hidden":"true"}),this.text=a("p",{class:"tokens","aria-label":n}),this.part=t.shown.length>_t?a("\
p",{class:"part"}):null,this.box=a("div",{class:"reading"},this.arcs,this.part,this.text),this.fill(0);let i=(r,l)=>this.text.addEventListener(r,c=>{let h=Ds(c);
h!==null&&l(h)});i("pointerover",e),i("focusin",e),i("click",o),this.text.addEventListener("pointerleave",()=>e(null)),this.text.addEventListener("keydown",r=>this.
onKey(r,o))}fill(t){let{shown:e,special:o,joined_to_previous:n}=this.sequence,i=Math.min(_t,e.length-t);if(this.from=t,this.spans=Array.from({length:i},(c,h)=>{
let u=e[t+h],p=u.length>40?M(u,400):null,f={class:o[t+h]?"token special":"token","data-i":t+h,role:"button",tabindex:h?"-1":"0",title:p};return a("span",f,M(u,40))}),
this.shades=new Int8Array(i),this.marked=null,this.text.replaceChildren(...this.spans.flatMap((c,h)=>[n[t+h]&&h?"":" ",c])),!this.part)return;let r=(c,h)=>{let u=c<
0||c>=e.length;return a("button",{type:"button",disabled:u,onclick:()=>this.showFrom(c)},h)},l=`tokens ${t} to ${t+i-1} of ${e.length}`;this.part.replaceChildren(
r(t-_t,"earlier"),l,r(t+_t,"later"))}showFrom(t){this.fill(t),this.draw()}onKey(t,e){let o=Ds(t);if(o===null)return;let n={ArrowLeft:-1,ArrowRight:1,Enter:0," ":0}[t.
key];if(n===void 0)return;if(t.preventDefault(),t.stopPropagation(),n===0){e(o);return}let i=this.spans[o-this.from+n];i&&(this.spans[o-this.from].tabIndex=-1,i.
tabIndex=0,i.focus())}paint(t,e){this.painted=[t,e],this.part&&e!==null&&!this.spanOf(e)&&this.fill(Math.floor(e/_t)*_t),this.draw()}spanOf(t){return this.spans[t-
this.from]}draw(){let[t,e]=this.painted,o=t?Math.max(1e-9,ze(t)):1;this.spans.forEach((n,i)=>{let r=t?t[this.from+i]:0,l=r>.001||r>0&&this.part?Math.sqrt(r/o):0,
c=l>.02?Math.round(72*l):0;c!==this.shades[i]&&(this.shades[i]=c,n.style.backgroundColor=c?`color-mix(in srgb, var(--shade) ${c}%, transparent)`:"",n.style.color=
c>0?"var(--ink)":"")}),this.marked?.classList.remove("from"),this.marked=e===null?null:this.spanOf(e)??null,this.marked?.classList.add("from"),this.arcs.replaceChildren(),
t&&e!==null&&this.marked&&this.drawArcs(t,e,this.marked)}drawArcs(t,e,o){let n=this.box.getBoundingClientRect(),i=l=>{let c=l.getBoundingClientRect();return[c.left+
c.width/2-n.left,c.top-n.top]},r=i(o);for(let l of te(t,dn,un,c=>c!==e&&this.spanOf(c)!==void 0)){let c=i(this.spanOf(l)),h=Math.min(r[1],c[1])-Math.min(34,8+Math.
abs(c[0]-r[0])/9),u=_("path",{d:`M${r} C${r[0]},${h} ${c[0]},${h} ${c}`,fill:"none","stroke-width":(.8+3*Math.sqrt(t[l])).toFixed(2),"stroke-opacity":(.35+.6*t[l]).
toFixed(2)});this.arcs.append(u)}}};function Ds(s){let t=ie(s,".token");return t?Number(t.dataset.i):null}function te(s,t,e,o=()=>!0){let n=[];for(let i=0;i<s.length;i+=
1)s[i]>=e&&o(i)&&n.push(i);return n.sort((i,r)=>s[r]-s[i]).slice(0,t)}var pn=3,mn=3,Be=24,fn=.02,ye=class{constructor(){this.list=a("ol");let t=U("Three rows of this text","example rows");this.element=a("section",{class:"pairs row\
s"},t,this.list)}async show(t){let e;if(t instanceof j){let l=await Fe("pairs",t.where).catch(()=>null);if(!l)return;e=await l.json()}else e=gn(t);let o=new Set,
n=l=>o.size<o.add(t.rows.shown[l]).size,i=e.map(([,l])=>l).filter(n).slice(0,pn),r=await Promise.all(i.map(l=>$t(t,!0,l))).catch(()=>null);r&&this.list.replaceChildren(
...i.map((l,c)=>wn(t,l,r[c])))}};function wn(s,t,e){let o=l=>a("span",{class:"word"},M(l,14)),n=te(e,mn,fn).map(l=>a("span",{},o(s.columns.shown[l])," ",a("smal\
l",{},y(e[l])))),i=W({row:String(t),dir:void 0}),r=a("a",{href:i,title:`token ${t}`},o(s.rows.shown[t]));return a("li",{},r," → ",a("span",{class:"keys"},n))}
function gn({coded:s,keys:t,queries:e,square:o,rows:n,columns:i}){let r=[],l=-1;for(let c=0;s&&c<e;c+=1)if(!n.special[c])for(let h=0,u=c*t;h<t;h+=1)s[u+h]<=l||i.
special[h]||o&&c===h||(r.push([s[u+h],c,h]),r.sort((p,m)=>m[0]-p[0]),r.length>Be&&r.pop(),r.length===Be&&(l=r[Be-1][0]));return r.map(([c,h,u])=>[(c/255)**2,h,u])}var zs=new Map;async function xe(s){let t=zs.get(s.name);t||(t=At(s.line),zs.set(s.name,t));let e=await t,o=d.pairs?.heads.length??0;return(n,i)=>{let r=e[n*o+i];
return r===255?NaN:s.low+r/254*(1-s.low)}}var Bs={cka:"CKA",attention:"attention distance",write:"write overlap",read:"read overlap"},St=({name:s})=>Object.hasOwn(
Bs,s)?Bs[s]:s,Us={correlation:"Do two heads write the same vectors?",cka:"Do two heads write the same, up to a rotation?",attention:"Do two heads look at the sa\
me tokens?",write:"Do two heads write into the same directions, by their weights?",read:"Do two heads read from the same directions, by their weights?"},Ue=({name:s})=>Object.
hasOwn(Us,s)?Us[s]:s,ve=s=>`${Ue(s)} ${P(s.meaning)}`,ee=s=>s.name==="attention";function Vs(s,t,e,o){let n=ee(s)?1:-1,i=[];return e.forEach((r,l)=>{for(let c of e.
slice(l+1)){let h=t(r,c);Number.isNaN(h)||i.push(r<c?[r,c,h]:[c,r,h])}}),i.sort((r,l)=>n*(r[2]-l[2])||r[0]-l[0]||r[1]-l[1]).slice(0,o)}var Ks={stack:void 0,layer:void 0,head:void 0,row:void 0,second:void 0},kn=4,se=class{constructor(t,e=!1){this.rows=new ye;let o=`Numbers of ${d.heads[t]}`,n=d.
texts.length?this.rows.element:null,i=[bn(t),yn(t),n,Sn(t),Tn(t),On(t),An(t),qn(t,e)];this.element=a("aside",{class:"panel","aria-label":o},i)}};function bn(s){
let t=ut(s);if(!t)return null;let e=et(s),o=x.shares.map((i,r)=>{let[l,c]=[A(`${i.name}_low`,s),A(`${i.name}_high`,s)],h=w(i.name,P(i.meaning)),u=a(e.includes(i)?
"b":"span",{},i.name," ",h);return Gs(u,{label:i.name,value:t[r],color:i.colour,low:l,high:c})}),n=a("p",{class:"dim"},"Parts of log n; the lines are 95 % inter\
vals.");return a("section",{class:"shares"},U("What decides where it looks","shares"),o,n)}function yn(s){if(!E("kind"))return null;let t=q(s),e=d.why?.[d.heads[s]],
o=Object.keys(d.kinds).map(l=>({name:l,score:A(`kind:${l}`,s)})).sort((l,c)=>+(c.name===t)-+(l.name===t)||(c.score??0)-(l.score??0)),n=o.slice(0,kn).map(({name:l,
score:c})=>c===null?null:$n(s,l,c,l===t)),i=e?`${V.evidence} Here: ${e}.`:V.evidence,r=a("p",{class:"dim"},"Bars are scores, ticks are thresholds. ",w("score"));
return a("section",{},U("Kind"),a("p",{},a("b",{},Q(s))),a("p",{class:"dim"},`${xn(s,o)} `,w("evidence",i)),a("div",{class:"scores"},n,r),vn(s))}function xn(s,t){
let e=t.find(({score:r})=>r!==null);if(!e)return"No kind could be measured.";let{threshold:o}=d.kinds[e.name],n=y(e.score);if(e.name!==q(s))return`${`Closest: ${B(
e.name)}, with a score of ${n}.`} Its 95 % interval would have to be above ${o} and above chance.`;let i=y(A("kind_control",s));return`Its score is ${n}: clear\
ly above the threshold (${o}) and above chance (${i}).`}function vn(s){let t={position:"positions, not words",content:"words, not positions",both:"positions and\
 words"},e=H("driven",s);if(!Object.hasOwn(t,e))return null;let o=A("driven_score",s),n=`Tokens were shuffled. The value is the overlap of the maps at the same \
positions, minus the overlap at the same words: ${o!==null&&o>0?"+":""}${y(o)}.`;return a("p",{class:"dim"},`Follows ${t[e]} `,w("follows",n))}function $n(s,t,e,o){
let{threshold:n}=d.kinds[t],[i,r,l]=["kind_control","kind_low","kind_high"].map(u=>o?A(u,s):null),c=`${B(t)} ${y(e)}, threshold ${n}`,h=a("span",{},B(t)," ",ke(
t));return Gs(h,{label:c,value:e,color:bt(t),threshold:n,chance:i,low:r,high:l})}function Gs(s,{label:t,value:e,color:o,threshold:n,chance:i=null,low:r,high:l}){
let c=u=>`${(100*Math.max(0,Math.min(1,u))).toFixed(1)}%`,h=_("svg",{class:"score",role:"img","aria-label":t});return h.append(_("rect",{x:0,y:5,width:"100%",height:6,
class:"track",rx:3}),_("rect",{x:0,y:5,width:c(e),height:6,rx:3,fill:o})),n!==void 0&&h.append(_("rect",{x:c(n),y:1,width:1.5,height:14,class:"tick"})),r!==null&&
l!==null&&h.append(_("line",{x1:c(r),x2:c(l),y1:8,y2:8,class:"ends"})),i!==null&&h.append(_("circle",{cx:c(i),cy:8,r:3,class:"chance"})),a("div",{class:"scoreli\
ne"},s,h,a("span",{class:"value"},y(e)))}function Sn(s){if(!d.importance)return null;let t=A("rank",s),e=le(s),o=e===null?"":` ± ${L(e,1)}`,n=t===null?"":`, ra\
nk ${t} of ${d.heads.length}`,i=`${P(E(d.importance)?.meaning??"")} ${P(d.corpus.loss??"")}`.trim();return a("section",{},U("Importance"),a("p",{},a("b",{},L(gt(
s),2)),`${o}${n}.`),Mn(s),a("p",{class:"dim"},`${V.importance.split(".")[0]}. `,w("how importance is measured",i)))}function Mn(s){if(!d.curve||!nt.has(d.heads[s]))
return null;let e=`Can be pruned${nt.size>1?`, together with ${nt.size-1} others,`:""} for less than ${it(d.curve.limit)} of quality. `;return a("p",{},e,a("a",
{href:W({...Ks,view:"pruning"})},"Show pruning →"))}function Tn(s){let t=H("most_similar",s),e=N.get(t);if(e===void 0)return null;let o=`, CKA similarity ${y(
A("most_similar_cka",s))} `,n=W({...Ks,view:"similarity",pick:d.heads[s]});return a("section",{},U("Most similar","most similar"),a("p",{},a("a",{href:C(e)},t),
o,w("CKA")),a("p",{},a("a",{href:W({second:t})},"Show side by side →")),a("p",{},a("a",{href:n},"Show all pairs →")))}function An(s){let t=d.often?.[d.heads[s]];
if(!t?.length)return null;let e="For every token, the other token with the largest weight, special tokens excluded: mean weight × number of times. The pairs wit\
h the most weight in total come first.",o=t.map(([i,r,l,c])=>En(i,r,`${y(c)} × ${l}`)),n=a("h3",{},"Strongest pairs over the corpus ",w("pairs",e));return a("s\
ection",{class:"pairs often"},n,a("ol",{},o))}function En(s,t,e){let o=n=>a("span",{class:"word"},M(n,14));return a("li",{},o(s)," → ",o(t),a("span",{class:"v\
alue"},e))}function On(s){let t=[];for(let h=-64;h<=64;h+=1){let u=A(`offset${h<0?h:`+${h}`}`,s);u!==null&&t.push([h,u])}if(t.length<3)return null;let e=Math.max(
...t.map(([,h])=>h),1e-9),o=100/t.length,i=_("svg",{class:"offsets",role:"img","aria-label":"mean weight by distance",...{viewBox:"0 0 100 40",preserveAspectRatio:"\
none"}});t.forEach(([h,u],p)=>{let m=u/e*38,[f,k]=[(p*o+o*.12).toFixed(2),(40-m).toFixed(2)],b={width:(o*.76).toFixed(2),height:m.toFixed(2)},O=_("rect",{x:f,y:k,
...b,class:h===0?"zero":""});O.append(_("title",{},`${h>0?"+":""}${h}: ${y(u)}`)),i.append(O)});let[r,l]=[t[0][0],t[t.length-1][0]],c=[`${-r} back`,"itself",`${l}\
 ahead`].map(h=>a("span",{},h));return a("section",{},U("Where it looks, by distance","by distance"),i,a("p",{class:"ends dim"},c),a("p",{class:"dim"},`Highest \
bar: ${y(e)} of the weight, mean over the corpus.`))}var Cn=["kind","most_similar","second","third","order$","cluster$","driven","leading$"],Ln=new RegExp(`^(of\
fset[+-]|(spread|rest|position|word|match)_|${Cn.join("|")})`);function qn(s,t){let e=Object.keys(d.table??{}).filter(c=>!Ln.test(c));if(!e.length)return null;let o=a(
"tbody"),n=()=>{if(!(!l.open||o.firstChild))for(let c of e){let h=Et(c,s),u=typeof h=="string"?h:L(h),p=h===null?ws(c,s):"",m=a("td",{},u,p?w(`missing: ${c}`,P(
p)):null),f=a("th",{scope:"row"},c," ",at(c));o.append(a("tr",{},f,m,a("td",{class:"dim"},E(c)?.unit)))}},i=a("table",{class:"measures"},o),r=a("summary",{},`Al\
l ${e.length} measures`),l=a("details",{open:t,ontoggle:n},r,i);return l}var Nn=["kind_score","entropy","max_weight","distance","first","special","previous","ou\
tput_norm"];function Ys(s,t){let o=[d.importance,...Nn].filter(c=>c!==null&&E(c)!==null).map(c=>{let h=a("th",{scope:"row"},c," ",at(String(c)));return a("tr",{},
h,[s,t].map(u=>a("td",{},L(A(c,u)))))}),n=E("kind")?a("tr",{},a("th",{scope:"row"},"kind ",w("kind")),[s,t].map(c=>a("td",{},gs(c)))):null,i=[s,t].map(c=>a("th",
{scope:"col"},d.heads[c])),r=a("thead",{},a("tr",{},a("td"),i)),l=a("table",{class:"measures"},r,a("tbody",{},n,o));return a("div",{class:"pair"},U("Both heads \
in numbers","measures"),l)}function Qs(s,t){let e=a("span",{class:"alikeness"}),{pairs:o}=d;if(!o)return e;let[n,i]=[s,t].map(r=>o.heads.indexOf(d.heads[r]));return Promise.
all(o.measures.map(xe)).then(r=>{e.append("Similarity: "),r.forEach((l,c)=>{let h=o.measures[c],u=`${c?", ":""}${St(h)} ${y(l(n,i))} `;e.append(u,w(St(h),ve(h)))})}),
e}var In=150;function Rn(s){let t=[{key:"head",title:"Head",help:w("head"),value:e=>e,show:e=>d.heads[e]}];if(E("kind")){let e=i=>Q(i)||null;t.push({key:"kind",title:"\
Kind",help:w("kind"),value:e,show:Ve,words:!0});let o=i=>A("kind_score",i),n=i=>y(o(i));Yt()||t.push({key:"score",title:"Score",help:w("score"),value:o,show:n})}
if(Yt()){let[e,o]=["shares","Shares"];t.push({key:e,title:o,help:w("shares"),value:Pn,show:jn,words:!0})}if(d.importance){let e=at(d.importance);t.push({key:"im\
portance",title:"Importance",help:e,value:gt,show:_n})}if(E("most_similar")){let e=i=>A("most_similar_cka",i),[o,n]=["most_similar","Most similar"];t.push({key:o,
title:n,help:w("most similar"),value:e,show:Fn,words:!0})}if(s!=="kind"&&s!=="shares"&&s!==d.importance&&E(s)){let e=n=>Et(s,n),o=n=>{let i=e(n);return typeof i==
"string"?i:L(i)};t.push({key:s,title:s,help:at(s),value:e,show:o})}return t}function Ve(s){let t=a("i",{class:"dot","aria-hidden":"true"});return t.style.background=
q(s)?fe(q(s)):"transparent",[t,Q(s)||L(null)]}function Pn(s){let t=ut(s),e=x.shares.indexOf(et(s)[0]);return t&&e>=0?2*e-t[e]:null}function jn(s){let t=ut(s);if(!t)
return L(null);let e=x.shares.map(({name:i},r)=>`${i} ${y(t[r])}`).join(", "),o=_("svg",{class:"sharebar",role:"img","aria-label":e,viewBox:"0 0 1 1"});o.setAttribute(
"preserveAspectRatio","none");let n=0;return t.forEach((i,r)=>{o.append(_("rect",{x:n,y:0,width:Math.max(0,i),height:1,fill:x.shares[r].colour})),n+=i}),o}function _n(s){
let t=le(s),e=t===null?null:a("small",{},` ± ${L(t,1)}`);return[L(gt(s),2),e]}function Fn(s){let t=H("most_similar",s);return t?[`${t} `,a("small",{},y(A("most\
_similar_cka",s)))]:L(null)}function Hn(s,t,e){return[...s].sort((o,n)=>{let[i,r]=[t.value(o),t.value(n)];if(i===null||r===null)return+(i===null)-+(r===null)||o-
n;let l=i<r?-1:i>r?1:0;return(e?-l:l)||o-n})}function Js(s,t,e){let o=Rn(e),n=T=>o.find(g=>g.key===T),i=n(s.sort)??n("importance")??o[0],r=["head","kind","share\
s"].includes(i.key),l=(s.down??(r?"0":"1"))==="1",c=Hn(t,i,l),h=o.map(T=>{let g=T===i,I=()=>S({sort:T.key,down:g?l?"0":"1":void 0}),F=g?l?" ↓":" ↑":"",st=g?
l?"descending":"ascending":"none",K=a("button",{type:"button",onclick:I},T.title+F);return a("th",{scope:"col",class:T.words?"words":"","aria-sort":st},K,T.help)}),
u=a("tbody"),p=a("button",{type:"button",class:"more"}),m=()=>{let T=u.rows.length;u.append(...c.slice(T,T+In).map(g=>Wn(g,o))),p.hidden=u.rows.length>=c.length,
p.textContent=`Show more of ${c.length} heads`};p.addEventListener("click",m),m();let f=a("caption",{class:"quiet"},"All heads"),k=a("table",{class:"heads"},f,a(
"thead",{},a("tr",{},h)),u),b={class:"scroll",tabindex:"0",role:"region","aria-label":"Table of heads"},O=a("button",{type:"button",onclick:Bn},"Download CSV");
return a("div",{class:"table"},a("div",b,k,p),a("p",{class:"tail"},O))}function Wn(s,t){let e=t.map(({show:o,words:n},i)=>i===0?a("th",{scope:"row"},a("a",{href:C(
s)},o(s))):a("td",{class:n?"words":""},o(s)));return a("tr",{"data-head":d.heads[s]},e)}var Dn=/^[=+\-@\t\r]/;function zn(s){return s===null?"":typeof s=="numbe\
r"?String(s):`"${(Dn.test(s)?`'${s}`:s).replaceAll('"','""')}"`}function Bn(){let s=Object.keys(d.table??{}),t=d.heads.map((o,n)=>{let{site:i,number:r}=v[n];return[
o,d.sites[i].layer,r,...s.map(l=>Et(l,n))]}),e=[["head","layer","number",...s],...t].map(o=>`${o.map(zn).join(",")}\r
`);ne(new Blob(e,{type:"text/csv"}),"heads.csv")}var Un=84,$e=class{constructor(t,e){this.text=e,this.site=-1,this.slots=[],this.element=a("section",{class:"strip"}),this.show(t)}show(t){v[t].site!==this.site&&
this.fill(v[t].site);for(let{head:e,slot:o}of this.slots)o.href=C(e),o.className=e===t?"slot on":"slot"}fill(t){this.site=t;let{label:e,heads:o}=d.sites[t];this.
slots=Array.from({length:o},(i,r)=>{let l=G[t]+r,c=a("span",{class:"hole"}),h=d.heads[l],u=a("a",{"aria-label":`${h} ${Q(l)}`},c,a("span",{class:"name"},h));return{
head:l,slot:u,picture:c}}),this.element.setAttribute("aria-label",`Heads of ${e}`);let n=a("div",{class:"slots"},this.slots.map(({slot:i})=>i));this.element.replaceChildren(
a("h3",{},`All heads of ${e}`),n),this.drawAll()}async drawAll(){let{slots:t}=this;if(d.texts.length)for(let{head:e,slot:o,picture:n}of t){if(await oe(),t!==this.
slots||o!==t[0].slot&&!o.isConnected)return;let i=await Nt(this.text,e).catch(()=>null);i&&n.replaceChildren(await Hs(i,Un).catch(()=>""))}}};var Vn=104,Kn=22,Xs=11,Gn=720,Zs=4,Ft=class{constructor({point:t,pick:e,drawn:o}){this.point=t,this.pick=e,this.drawn=o,this.map=null,this.window={x:0,y:0,w:1,h:1},
this.mark={row:null,column:null},this.width=0,this.height=0,this.room=0,this.type=1,this.dragged=!1,this.painted=null,this.pointers=new Map,this.canvas=a("canva\
s",{class:"map",role:"img",tabindex:"-1"}),this.box=a("div",{class:"mapbox"},this.canvas),this.canvas.addEventListener("wheel",n=>this.onWheel(n),{passive:!1}),
this.canvas.addEventListener("pointerdown",n=>this.onDown(n)),this.canvas.addEventListener("pointermove",n=>this.onMove(n)),this.canvas.addEventListener("pointe\
rup",n=>this.onUp(n)),this.canvas.addEventListener("pointercancel",n=>this.pointers.delete(n.pointerId)),this.canvas.addEventListener("pointerleave",()=>this.point(
null)),this.canvas.addEventListener("dblclick",()=>this.showAll())}get labels(){return Math.round(Vn*this.type)}get place(){return{left:this.labels,width:this.width,
window:this.window}}show(t){let e=this.map&&this.map.queries===t.queries&&this.map.keys===t.keys;this.map=t,e||(this.window={x:0,y:0,w:t.keys,h:t.queries});let o=`${t.
queries} queries down, ${t.keys} keys across`,n=`Attention map of ${t.name}: ${o}. The text below has the same weights.`;this.canvas.setAttribute("aria-label",n)}clear(){
z(this.canvas,this.canvas.clientWidth,this.canvas.clientHeight)}showAll(){this.map&&(this.window={x:0,y:0,w:this.map.keys,h:this.map.queries},this.draw())}zoom(t,e=this.
width/2,o=this.height/2){let{map:n,window:i}=this;if(!n)return;let[r,l]=[i.x+e/this.width*i.w,i.y+o/this.height*i.h],c=Math.max(Math.min(Zs,n.keys),Math.min(n.keys,
i.w/t)),h=Math.max(Math.min(Zs,n.queries),Math.min(n.queries,i.h/t));this.window={w:c,h,x:r-e/this.width*c,y:l-o/this.height*h},this.draw()}clampWindow(){let{map:t,
window:e}=this;t&&(e.x=Math.max(0,Math.min(t.keys-e.w,e.x)),e.y=Math.max(0,Math.min(t.queries-e.h,e.y)))}onWheel(t){if(t.deltaY>0&&this.window.w>=(this.map?.keys??
0)&&!t.ctrlKey&&!t.metaKey)return;t.preventDefault();let[o,n]=ct(t,this.canvas);this.zoom(Math.exp(-t.deltaY/300),o-this.labels,n-this.labels)}onDown(t){this.canvas.
setPointerCapture(t.pointerId),this.pointers.set(t.pointerId,ct(t,this.canvas)),this.dragged=!1}onMove(t){let e=ct(t,this.canvas),o=this.pointers.get(t.pointerId);
if(!o){this.point(this.cellAt(e));return}let n=[...this.pointers].find(([i])=>i!==t.pointerId)?.[1];if(n){let i=c=>Math.hypot(c[0]-n[0],c[1]-n[1]),[r,l]=[(e[0]+
n[0])/2-this.labels,(e[1]+n[1])/2-this.labels];this.dragged=!0,this.zoom(i(e)/Math.max(1,i(o)),r,l)}else if(this.dragged||Math.hypot(e[0]-o[0],e[1]-o[1])>4)this.
dragged=!0,this.window.x-=(e[0]-o[0])/this.width*this.window.w,this.window.y-=(e[1]-o[1])/this.height*this.window.h,this.draw();else return;this.pointers.set(t.
pointerId,e)}onUp(t){if(this.pointers.delete(t.pointerId),this.dragged)return;let e=this.cellAt(ct(t,this.canvas));e&&this.pick(e)}cellAt([t,e]){let{map:o,window:n}=this;
if(!o||t<this.labels||e<this.labels)return null;let i=Math.floor(n.x+(t-this.labels)/this.width*n.w),r=Math.floor(n.y+(e-this.labels)/this.height*n.h);return r>=
0&&i>=0&&r<o.queries&&i<o.keys?[r,i]:null}observeRoom(){let t=()=>{let e=this.box.clientWidth;return e===this.room?!1:(this.room=e,this.type=bs(),!0)};t(),new ResizeObserver(
()=>t()&&this.draw()).observe(this.box)}draw(){let{map:t}=this;if(!t)return;this.clampWindow(),this.room||this.observeRoom(),this.width=Math.max(80,Math.min(this.
room||560,this.type*Gn)-this.labels),this.height=Math.max(80,Math.min(1.6*this.width,this.width*t.queries/t.keys));let e=z(this.canvas,this.width+this.labels,this.
height+this.labels),o=Math.round(this.labels*It()),n=this.paint(t);this.canvas.toggleAttribute("data-waiting",t instanceof j&&t.asking!==null),n&&e.putImageData(
n,o,o),this.drawFrame(e,t),this.drawMarks(e),this.drawn()}paint(t){let e=It(),[o,n]=[Math.round(this.width*e),Math.round(this.height*e)],i=()=>this.box.isConnected&&
this.draw(),r=t instanceof j?t.picture(this.window,o,n,i):null,l=t.coded??r?.coded;if(!l)return null;let c=[...Object.values(this.window),o,n].join(" ");if(this.
painted?.key!==c||this.painted.from!==l){let h=r??{coded:l,keys:t.keys,queries:t.queries},u=r?_s(r,this.window):this.window;this.painted={key:c,from:l,image:De(
h,u,o,n)}}return this.painted.image}drawFrame(t,e){let{window:o,width:n,height:i,labels:r,type:l}=this,[c,h]=[n/o.w,i/o.h];t.strokeStyle=$("--line"),t.strokeRect(
r-.5,r-.5,n+1,i+1),t.font=`600 ${12*l}px ${D}`,t.fillStyle=$("--ink"),t.textBaseline="middle",t.textAlign="center",t.fillText(n<180*l?"key":"key: the token look\
ed at",r+n/2,8*l),rt(t,i<180*l?"query":"query: the token that looks",8*l,r+i/2),t.textAlign="right";let u=(f,k,b)=>(t.fillStyle=$(b?"--ink":k?"--faint":"--dim"),
t.font=`${b?"600 ":""}${11*l}px ${D}`,Yn(t,f,r-(Kn+8)*l)),p=Math.max(1,Math.ceil(l*Xs/h));for(let f=Math.ceil(o.y/p-1e-9)*p;f<Math.min(e.queries,o.y+o.h);f+=p){
let k=r+(f+.5-o.y)*h;k<r+2||k>r+i-2||t.fillText(u(e.rows.shown[f],e.rows.special[f],f===this.mark.row),r-6,k)}t.textAlign="left";let m=Math.max(1,Math.ceil(l*Xs/
c));for(let f=Math.ceil(o.x/m-1e-9)*m;f<Math.min(e.keys,o.x+o.w);f+=m){let k=r+(f+.5-o.x)*c;if(k<r+2||k>r+n-2)continue;let b=u(e.columns.shown[f],e.columns.special[f],
f===this.mark.column);rt(t,b,k,r-6)}}drawMarks(t){let{window:e,width:o,height:n,labels:i}=this,{row:r,column:l}=this.mark,[c,h]=[o/e.w,n/e.h];t.save(),t.beginPath(),
t.rect(i,i,o,n),t.clip(),t.strokeStyle=$("--mark"),t.lineWidth=1.5,r!==null&&t.strokeRect(i-2,i+(r-e.y)*h,o+4,Math.max(2,h)),l!==null&&t.strokeRect(i+(l-e.x)*c,
i-2,Math.max(2,c),n+4),t.restore()}savePng(){let{map:t}=this;if(!t)return;let e=a("canvas",{width:this.canvas.width,height:this.canvas.height}),o=Gt(e);o.fillStyle=
$("--paper"),o.fillRect(0,0,e.width,e.height),o.drawImage(this.canvas,0,0),e.toBlob(n=>n&&ne(n,`${t.name}.png`))}};function Yn(s,t,e){let o=M(t,18);for(;o.length>
2&&s.measureText(o).width>e;)o=`${Array.from(o).slice(0,-2).join("")}…`;return o}var to=new Map,Qn=["Your text","Type or paste a text"],Jn=["Text for the encoder","Text for the encoder: type or paste it"],eo="Words that the decoder has read";
function Ht(s){let t=Z(s.text,d.texts.length)??-1;return d.texts[t]?t:d.texts.findIndex(Boolean)}function Wt(s){let{texts:t}=d;if(!t.length)return[];let{source:e}=t[s],
o=new Map,n=[];t.forEach((l,c)=>{o.has(l.source)||o.set(l.source,c),l.source===e&&n.push([String(c),`${l.window[0]+1} of ${l.window[1]}`])});let i=l=>S({text:l,
row:void 0}),r=[];if(o.size>1){let l=[...o.values()].map(h=>[String(h),t[h].name]),c=d.served?.includes("text")===!1?"Input":"Text";r.push(X(c,l,String(o.get(e)),
i))}return n.length>1&&r.push(X("Window",n,String(s),i)),[...r,Ke({},s)]}function Ke(s={},t=-1){let e=d.served??[];if(!e.length||!e.includes("text")&&t<0)return null;
let o=to.get(t),n=e.includes("decoder"),i=so(...n?Jn:Qn,o?.text),r=e.includes("text")?". Empty: the model writes its own answer":"",l=so(eo,`${eo}${r}`,o?.decoder),
c=a("button",{type:"button",class:"primary"},"Show this text"),h=a("span",{class:"dim",role:"status"});c.addEventListener("click",async()=>{if(e.includes("text")&&
!i.value.trim()){h.textContent="Type a text first.",i.focus();return}c.disabled=!0,h.textContent="The model is reading it …";let p=e.includes("text")&&!l.value.
trim(),m=n&&!p?{decoder:l.value}:{},f=e.includes("text")?i.value:d.texts[t].at??t;try{let{texts:k,first:b}=await Rs({text:f,...m});k.forEach((O,T)=>d.texts[b+T]=
O),to.set(b,{text:i.value,decoder:l.value}),S({...s,text:String(b),row:void 0})}catch(k){h.textContent=k instanceof Error?k.message:String(k)}c.disabled=!1});let u=[
e.includes("text")?i:null,n?l:null];return a("details",{class:"own"},a("summary",{},"Try your own text"),u,a("p",{},c," ",h))}function so(s,t,e=""){let o=a("tex\
tarea",{rows:"5","aria-label":s,placeholder:t});return o.value=e,o}var Dt="looks",zt="seen",Xn=1e6,Zn=80,ti=70;function io(s,t){let e=s.second===void 0?void 0:N.get(s.second),o=new Ge(s,t,e??null);return{element:o.element,start:()=>o.
start(),resize:()=>o.paint(),stop:()=>o.stop(),moveTo:(n,i)=>o.moveTo(n,i)}}function oo(s){let{stack:t,layer:e,head:o,row:n,...i}=s;return JSON.stringify(i)}var Ge=class{constructor(t,e,o){
this.state=t,this.head=e,this.second=o,this.text=Ht(t),this.looks=t.dir!==zt,this.live=!0,this.turn=0,this.pinned=null,this.token=null,this.cell=null,this.timer=
0,this.texts=null,this.spoken=a("p",{class:"said"}),this.panes=(o===null?[e]:[e,o]).map(c=>this.makePane(c)),this.textSide=a("div",{class:"textside"}),this.panel=
o===null?new se(e):null,this.top=no(e,o),this.strip=new $e(e,this.text),this.compare=this.compareControl();let n=this.panel?.element??Ys(e,o),i=a("div",{class:"\
panes"},this.panes.map(c=>c.box)),r=a("div",{class:"mapside"},this.controls(),i,this.textSide),l=a("div",{class:o===null?"scene":"scene both"},r,n);this.element=
a("div",{class:"headview"},this.top,l,this.strip.element)}makePane(t){let e=a("p",{class:"cellnote"}),o=a("canvas",{class:"profile","aria-hidden":"true"}),n=new Ft(
{point:h=>{this.cell=h,this.aim(h&&h[this.looks?0:1])},pick:h=>this.pin(h[this.looks?0:1]),drawn:()=>this.drawProfiles()}),i=(h,u,p)=>a("button",{type:"button",
"aria-label":p,onclick:u},h),r=a("div",{class:"zoom"});r.append(i("+",()=>n.zoom(1.6),"Zoom in"),i("−",()=>n.zoom(1/1.6),"Zoom out"),i("Whole map",()=>n.showAll(),
"Whole map"),i("PNG",()=>n.savePng(),"Download the map as PNG"));let l=this.second===null?null:a("h3",{},`${d.heads[t]} `,a("small",{},Q(t))),c=a("div",{class:"\
under"},ei(),r,e);return{head:t,map:null,view:n,profile:o,note:e,box:a("div",{class:"pane"},l,n.box,o,c)}}compareControl(){let t=H("most_similar",this.head),{site:e}=v[this.
head],o=d.heads.filter((l,c)=>v[c].site===e&&l!==d.heads[this.head]),n=[...new Set([t,...o])].filter(Boolean).map(l=>a("option",{value:l})),i=a("input",{list:"o\
thers",placeholder:t?`e.g. ${t}`:"head",size:"9","aria-label":"Compare with head",autocomplete:"off",onchange:()=>{let l=i.value.trim();S({second:N.has(l)?l:void 0})}});
i.value=this.state.second??"";let r=a("label",{},a("span",{},"Compare with"),i);return a("div",{class:"choice"},r,a("datalist",{id:"others"},n))}controls(){let{
norm:t,hide:e}=this.state;return a("div",{class:"controls"},Wt(this.text),this.compare,Bt("norm-weighted",t==="1",o=>S({norm:o?"1":void 0}),w("norm-weighted")),
Bt("hide delimiters",e==="1",o=>S({hide:o?"1":void 0}),w("hide delimiters")))}async start(){let t=await Promise.all(this.panes.map(e=>mt(this.text,e.head))).catch(
()=>[null]);this.live&&this.showMaps(t)}moveTo(t,e){let{map:o}=this.panes[0],n=o!==null&&!(o instanceof j);return this.second===null&&this.texts&&n&&oo(t)===oo(
this.state)?this.turnTo(t,e):null}async turnTo(t,e){this.state=t,this.head=e,this.turn+=1;let{turn:o}=this,n=setTimeout(()=>o===this.turn&&this.panes[0].view.clear(),
Zn),i=await mt(this.text,e).catch(()=>null);if(clearTimeout(n),!this.live||o!==this.turn)return;this.panes[0].head=e;let r=this.panel?.element.querySelector("de\
tails[open]")!==null,[l,c,h]=[new se(e,r),no(e,null),this.compareControl()];this.panel?.element.replaceWith(l.element),this.top.replaceWith(c),this.compare.replaceWith(
h),Object.assign(this,{panel:l,top:c,compare:h}),this.strip.show(e),this.showMaps([i])}showMaps(t){let{norm:e,hide:o}=this.state;if(!t[0]){this.texts=null;let r=d.
served?"The map of this head did not arrive.":"The map of this head is not in this page.";this.textSide.replaceChildren(a("p",{class:"dim"},r)),this.panes.forEach(
l=>l.box.remove());return}this.panes.forEach((r,l)=>{r.map=t[l]?.reweighted(e==="1",o==="1")??null,r.map&&r.view.show(r.map)});let n=this.panes[0].map,i=this.token===
this.pinned?null:this.token;this.pinned=Z(this.state.row,this.looks?n.queries:n.keys),this.token=i??this.pinned,(this.texts?.rows.sequence!==n.rows||this.texts.
columns.sequence!==n.columns)&&this.makeTexts(n),this.paint(),this.panel?.rows.show(t[0]),this.second===null&&!d.served&&n.queries*n.keys<=Xn&&this.computeAhead()}async computeAhead(){
let{turn:t}=this;for(let e of[[0,1],[1,0],[0,-1],[-1,0]]){if(await oe(),!this.live||t!==this.turn)return;await mt(this.text,Ot(this.head,e)).catch(()=>null)}}stop(){
this.live=!1;for(let{map:t}of this.panes)t instanceof j&&t.cancel()}makeTexts(t){this.token=this.pinned,this.cell=null;let e=(l,c)=>new ft(l,{hover:h=>this.aim(
h),pick:h=>this.pin(h),label:c}),o=e(t.rows,t.square?"Tokens of the text":"Tokens that look"),n=t.square?o:e(t.columns,"Tokens that are looked at");this.texts={
rows:o,columns:n};let i=this.second===null?"Text":`Text, as ${d.heads[this.head]} reads it`,{note:r}=d.texts[this.text];this.textSide.replaceChildren(a("div",{class:"\
texttop"},a("h3",{},i),this.directionControl()),r?a("p",{class:"dim"},P(r)):"",...new Set([o.box,n.box]),this.spoken)}directionControl(){let t=(n,i)=>{let l=a("\
input",{type:"radio",name:"way",value:n,onchange:()=>S({dir:n===Dt?void 0:n})});return l.checked=n===Dt===this.looks,a("label",{},l,i)},e=a("legend",{class:"qui\
et"},"Direction"),o=[t(Dt,"where a token looks"),t(zt,"who looks at a token")];return a("fieldset",{class:"way"},e,o,w("direction"))}aim(t){this.token=t??this.pinned,
this.paint()}pin(t){this.pinned=this.pinned===t?null:t,this.token=this.pinned,kt({row:this.pinned===null?void 0:String(t)}),this.paint()}paint(){let{texts:t,token:e,
looks:o}=this,n=this.panes[0].map;if(!t||!n)return;for(let c of this.panes)c.map&&(c.view.mark=o?{row:e,column:null}:{row:null,column:e},c.view.draw(),c.note.textContent=
this.cellText(c.map));let i=e===null?null:n.weights(o,e);e!==null&&!i&&this.fetchWeights(e);let[r,l]=o?[t.rows,t.columns]:[t.columns,t.rows];r===l?r.paint(i,e):
(r.paint(null,e),l.paint(i,null)),this.spoken.textContent=this.tokenText(n,i)}fetchWeights(t){clearTimeout(this.timer),this.timer=window.setTimeout(async()=>{if(!this.
live||t!==this.token)return;let e=this.panes.map(({map:o})=>o&&$t(o,this.looks,t));await Promise.all(e).catch(()=>{}),this.live&&t===this.token&&this.panes[0].map?.
weights(this.looks,t)&&this.paint()},this.pinned===t?0:ti)}cellText(t){if(!this.cell)return" ";let[e,o]=this.cell,n=t.weights(!0,e);return n?`“${M(t.rows.shown[e],
16)}” → “${M(t.columns.shown[o],16)}” ${n[o].toFixed(3)}`:" "}tokenText(t,e){if(this.token===null)return"Point at a token, in the text or on the map; c\
lick to keep it.";let[o,n]=this.looks?[t.rows,t.columns]:[t.columns,t.rows],i=`“${M(o.shown[this.token],24)}”, token ${this.token}`;if(!e)return`${i}: loadi\
ng …`;let r=c=>`“${M(n.shown[c],16)}” ${y(e[c])}`,l=te(e,6,.005).map(r).join(", ")||"no token with much weight";return`${i}, ${this.looks?"looks at":"is l\
ooked at by"} ${l}`}drawProfiles(){for(let{map:t,view:e,profile:o}of this.panes){let n=this.token===null||!this.looks?null:t?.weights(!0,this.token)??null;o.style.
visibility=n?"visible":"hidden",n&&Ws(o,n,e.place)}}};function ei(){let s=Rt(n=>dt(Pe(),n)),t=[0,.1,.25,.5,1].map(n=>{let i=a("span",{},String(n));return i.style.
left=`${100*n**x.weight_exponent}%`,i}),e=a("div",{class:"scale"},s,a("div",{class:"ticks","aria-hidden":"true"},t)),o=a("span",{},"attention weight, square-roo\
t scale ",w("weight"));return a("div",{class:"weightbar"},e,o,a("span",{},"reading the map ",w("attention map")))}function no(s,t){let e=(i,r,l)=>{let c=Ot(s,i),
h=`${l}: ${d.heads[c]}`;return a("a",{href:C(c),class:"step",title:h,"aria-label":h},r)},o=a("span",{class:"steps"});o.append(e([0,-1],"←","previous head"),e(
[0,1],"→","next head"),e([-1,0],"↑","previous layer"),e([1,0],"↓","next layer"));let n=t===null?qs(s):Qs(s,t);return a("div",{class:"headtop"},a("h2",{},d.
heads[s]),t===null?null:a("span",{class:"beside"},`and ${d.heads[t]}`),E("kind")&&t===null?a("span",{class:"chip"},Ve(s)):null,o,a("a",{href:W(de),class:"back"},
"← All heads"),a("p",{class:"does"},n))}var ro=s=>X("Show",[[Dt,"where the token looks"],[zt,"who looks at the token"]],s?Dt:zt,t=>S({dir:t===Dt?void 0:t}),w(
"direction"));function ao(s,t){return s==="shares"?si(t):s==="kind"?oi(t):ni(s)}function si(s){let t=x.shares.map(({name:r,colour:l,meaning:c})=>{let h=d.heads.filter((u,p)=>et(
p).some(m=>m.name===r)).length;return a("li",{},ho("share",r,r,l,h,s),a("span",{class:"meaning"},c))}),e=lo().filter(([r])=>r&&!tt(r).length),o=e.length?a("div",
{class:"legend"},co(e,s)):null;return a("div",{},a("p",{class:"legend"},a("b",{},"What decides where a head looks ",w("shares")),a("span",{class:"dim ringhint"},
"Ring: the five shares. Disc: the share that leads, or two."),a("span",{class:"dim tilehint"},"Colour: the share that leads, or two; weaker where it is small.")),
a("ul",{class:"sharelist"},t),o,a("p",{class:"legend hints"},a("span",{class:"ringhint"},uo()),po(),a("span",{class:"dim"},"Click a share or a kind to list its \
heads.")))}function oi(s){let t=a("span",{class:"dim"},"Click a kind to list its heads.");return a("div",{class:"legend"},co(lo(),s),uo(),po(),t)}function lo(){
let s=new Map;for(let t of d.heads.keys()){let e=ht(q(t));s.set(e,(s.get(e)??0)+1)}return[...s].sort((t,e)=>e[1]-t[1])}function co(s,t){let e=s.map(([o,n])=>a("\
span",{class:"keyhelp"},ho("kind",o,B(o),fe(o),n,t),ke(o)));return[a("b",{},"Kinds of heads ",w("kind")),e]}function ho(s,t,e,o,n,i){let r=a("i",{class:"dot"});
r.style.background=o;let l=i[s]===t,c=()=>S({share:void 0,kind:void 0,[s]:l?void 0:t}),h=a("button",{type:"button",class:"key","aria-pressed":String(l),onclick:c});
return h.append(r,e,a("small",{},String(n))),h}var uo=()=>d.importance?a("span",{class:"dim"},"Larger: more important ",w("importance")):null,po=()=>nt.size?a("\
span",{class:"dim"},"Hollow: can be pruned ",w("can be pruned")):null;function ni(s){let{ramp:t,low:e,high:o}=je(ae(s));if(e>o)return a("p",{class:"legend"});let n=Rt(
r=>dt(t,r)),i=a("span",{class:"dim"},s," ",at(s));return a("p",{class:"legend"},L(e),n,L(o),i)}var ii=["entropy","distance","first","special","previous","next","self","induction","same_token"];function ri(){let s=fs(),t=[d.importance??"",...ii].filter(n=>s.
includes(n)),e=n=>[n,n],o=t.map(e);return E("kind")&&o.unshift(["kind","kind of head"]),Yt()&&o.unshift(["shares","what decides where it looks"]),{options:o,more:s.
filter(n=>!t.includes(n)).map(e)}}function ai({share:s,kind:t}){let e=i=>et(i).some(({name:r})=>r===s),o=i=>ht(q(i))===t,n=i=>d.heads.some((r,l)=>i(l));return n(
e)?{share:s,has:e}:n(o)?{kind:t,has:o}:{has:()=>!0}}function fo(s){let t=ri(),e=[...t.options,...t.more],o=e.find(([m])=>m===s.color)?.[0]??e[0]?.[0]??"kind",{share:n,
kind:i,has:r}=ai(s),l=new we(o,r),c=a("section",{class:"gridside","aria-label":"Grid of heads"});c.append(ci(o,t),l.box,ao(o,{share:n,kind:i}),l.note);let h=[...d.
heads.keys()].filter(r),u=d.table?a("section",{class:"tableside","aria-label":"Table of heads"}):null,p=h.length;return n!==void 0&&u?.append(mo(`in which ${n} \
leads`,li(n),p)),i!==void 0&&u?.append(mo(`of kind “${B(i)}”`,Jt(i),p)),u?.append(Js(s,h,o)),{element:a("div",{class:"two"},c,u),start:()=>l.draw(),resize:()=>l.
draw()}}var li=s=>P(tt(s)[0]?.meaning??"");function ci(s,{options:t,more:e}){let o=Ke({view:"tokens"});if(!t.length&&!e.length)return a("div",{class:"controls"},
o);let n=s==="kind"||s==="shares"?w(s):at(s);return a("div",{class:"controls"},X("Colour by",t,s,r=>S({color:r,kind:void 0,share:void 0}),n,e),o)}function mo(s,t,e){
let n=a("button",{type:"button",onclick:()=>S({kind:void 0,share:void 0})},"Show all heads");return a("p",{class:"filter"},a("b",{},`${Y(e,"head")} ${s}`),": ",
t," ",n)}var Mt=320,Ye={left:66,right:12,top:10,bottom:46},hi=2;function go(s){let{curve:t,cost:e}=d,o=e?new Je(e):null,n=a("div",{class:"cutview"});if(!t?.curves.length)
return n.append(a("p",{class:"lead"},"The quality without some of the heads was not measured for this page.")),o&&n.append(o.element),{element:n};let i=new Xe(s,
t,o),r=a("p",{class:"lead"},a("b",{},di(t))," ",w("can be pruned")," ",ui(t)),l=a("section",{},i.list);return n.append(r,a("div",{class:"two"},a("section",{class:"\
curveside"},i.element),l)),o&&n.append(o.element),{element:n,start:()=>i.draw(),resize:()=>i.draw()}}var ko=s=>s.heads??s.curves[0].order.length;function di(s){
let t=it(s.limit,3);return s.prunable?`${s.prunable} of ${ko(s)} heads can be pruned for less than ${t} of quality.`:`No head can be pruned for less than ${t} o\
f quality.`}function ui(s){if(!s.cut)return"Heads are switched off together, the least important first, and the model is measured again. Nothing is refitted her\
e: real pruning (multihead prune) does better.";let t=Y(s.fitted??0,"document"),e=`its quality measured on ${s.judged} others`;return`Every point is a pruned mo\
del: its weights were refitted on ${t}, ${e}.`}var Je=class{constructor(t){this.cost=t,this.table=a("div",{class:"scroll wide"});let e=U("What attention costs",
"attention costs"),o=a("p",{class:"dim"},t.title.slice(1).join(" · "));this.element=a("section",{},e,o,this.table),this.show()}show(t){let{heading:e,rows:o}=this.
cost,n=t?.cost,i=n?[e[0],`with ${t.kept} heads`]:e,r=n?o.map(([p,m],f)=>[p,m,n[f]]):o,l=["none",x.format.missing],c=r.filter(([,...p])=>p.some(m=>!l.includes(m))),
h=a("tr",{},a("td"),i.map(p=>a("th",{scope:"col"},p))),u=c.map(([p,...m])=>a("tr",{},a("th",{scope:"row"},p," ",pi(p)),m.map(f=>a("td",{},f))));this.table.replaceChildren(
a("table",{class:"cost"},a("thead",{},h),a("tbody",{},u)))}};function pi(s){let t=`cost: ${s}`;return Object.hasOwn(V,t)?w(s,V[t]):null}var Xe=class{constructor(t,e,o){
this.curve=e,this.costs=o,this.total=ko(e),this.which=Z(t.method,e.curves.length)??0,this.line=e.curves[this.which],this.points=wo(this.line.points);let n=Z(t.gone,
this.total+1)??e.prunable,[i,r]=e.cut?[this.points.length-1,this.nearest(n)]:[this.total,n];this.slider=a("input",{type:"range",min:0,max:i,value:r,"aria-label":"\
heads removed"}),this.slider.addEventListener("input",()=>{kt({gone:String(this.removed)}),this.draw()}),this.canvas=a("canvas",{class:"curve",role:"img","aria-\
label":"Quality lost against heads kept"}),this.frame=a("div",{class:"gridbox"},this.canvas),this.list=a("div",{class:"gone"});let l=a("h3",{},`Quality lost: ${e.
unit} `,w("quality lost")),c=a("label",{class:"slider"},a("span",{},"heads removed"),this.slider);this.element=a("div",{},l,this.frame,c,this.legend())}get removed(){
let t=Number(this.slider.value);return this.curve.cut?this.points[t].gone:t}nearest(t){let e=this.points.map(o=>Math.abs(o.gone-t));return e.indexOf(Math.min(...e))}legend(){
let{curves:t}=this.curve;if(t.length===1)return a("p",{class:"legend dim"},t[0].method," ",w("method"));let e=t.map((o,n)=>{let i=a("i",{class:"dot"});i.style.background=
Re(n);let r=()=>S({method:String(n),gone:String(this.removed)}),l=String(n===this.which);return a("button",{type:"button",class:"key","aria-pressed":l,onclick:r},
i,o.method)});return a("p",{class:"legend",role:"group","aria-label":"method"},e,w("method"))}lossAt(t){let{points:e}=this,o=e.findIndex(r=>r.gone>=t);if(o<0)return e[e.
length-1].lost;if(o===0||e[o].gone===t)return e[o].lost;let[n,i]=[e[o-1],e[o]];return n.lost+(t-n.gone)/(i.gone-n.gone)*(i.lost-n.lost)}draw(){let{left:t,right:e,
top:o,bottom:n}=Ye,i=Math.min(this.frame.clientWidth||560,720),r=z(this.canvas,i,Mt),l=this.curve.curves.flatMap(({points:m})=>m.map(({lost:f})=>Math.min(f,hi))),
[c,h]=[Math.min(0,...l),Math.max(.01,this.curve.limit,...l)],u=m=>t+m/this.total*(i-t-e),p=m=>Mt-n-(m-c)/(h-c)*(Mt-o-n);this.drawAxes(r,i,u,p,c,h),r.save(),r.beginPath(),
r.rect(t,o-4,i-t,Mt-o-n+8),r.clip(),this.curve.curves.forEach((m,f)=>{let k=wo(m.points);r.strokeStyle=r.fillStyle=Re(f),r.lineWidth=f===this.which?2.5:1.2,r.beginPath();
for(let b of k)r.lineTo(u(b.gone),p(b.lost));r.stroke();for(let b of k)r.beginPath(),r.arc(u(b.gone),p(b.lost),3,0,2*Math.PI),r.fill()}),r.restore(),r.strokeStyle=
$("--mark"),r.lineWidth=1.5,Qe(r,u(this.removed),o,u(this.removed),Mt-n),this.describe(this.removed)}drawAxes(t,e,o,n,i,r){let{left:l,right:c,bottom:h}=Ye,u=n(this.
curve.limit);t.font=`11px ${D}`,t.fillStyle=$("--dim"),t.strokeStyle=$("--line"),t.lineWidth=1,t.textBaseline="middle";for(let p=0;p<=4;p+=1){let m=i+(r-i)*p/4;
t.textAlign="right",t.fillText(`${Math.round(100*m)} %`,l-8,n(m)),Qe(t,l,n(m),e-c,n(m));let f=Math.round(this.total*(4-p)/4);t.textAlign=p===0?"left":p===4?"rig\
ht":"center",t.fillText(String(f),o(this.total-f),Mt-h+14)}t.textAlign="center",t.fillStyle=$("--ink"),t.font=`600 12px ${D}`,t.fillText("heads kept",(l+e-c)/2,
Mt-8),rt(t,"quality lost",8,(Ye.top+Mt-h)/2),t.textAlign="right",t.fillStyle=$("--dim"),t.fillText(`limit ${Number((100*this.curve.limit).toPrecision(3))} %`,e-
c-4,u-9),t.setLineDash([4,4]),t.strokeStyle=$("--dim"),Qe(t,l,u,e-c,u),t.setLineDash([])}describe(t){let e=this.points.find(u=>u.gone===t),o=e?.heads??this.line.
order.slice(0,t),i=`: ${e?"":"about "}${it(this.lossAt(t))} of quality lost.`,r=`${Y(t,"head")} removed, ${this.total-t} of ${this.total} heads kept`,l=d.sites.
map(u=>{let p=o.filter(f=>Ut(f)===u.label),m=a("td",{class:"few"},`${u.heads-p.length} of ${u.heads}`);return a("tr",{},a("th",{scope:"row"},u.label),m,a("td",{
class:"names"},mi(p)))}),c=["layer","heads kept","removed heads"].map(u=>a("th",{scope:"col"},u)),h=a("table",{class:"gonetable"},a("thead",{},a("tr",{},c)),a("\
tbody",{},l));this.list.replaceChildren(a("p",{},a("b",{},r),i),...fi(e),a("div",{class:"scroll"},h)),this.costs?.show(e)}},wo=s=>[...s].sort((t,e)=>t.gone-e.gone);
function mi(s){return s.map((t,e)=>{let o=N.get(t);return[e?" ":"",o===void 0?t:a("a",{href:C(o)},t)]})}function fi(s){let t=[];if(s?.parameters){let e=d.model.
parameters,o=it(1-s.parameters/e);t.push(a("p",{},`${Kt(e)} parameters → ${Kt(s.parameters)} (${o} less)`))}if(s?.speed){let{ratio:e,low:o,high:n,batch:i,tokens:r,
rounds:l,verdict:c}=s.speed,h=c==="faster"||c==="slower"?`${L(e)} times as fast`:c,p=`${`${o.toFixed(2)} to ${n.toFixed(2)}`}, ${l} interleaved rounds, ${i} × ${r}\
 tokens`;t.push(a("p",{class:"dim"},`The model on this machine: ${h} (${p}).`))}return t}function Qe(s,t,e,o,n){s.beginPath(),s.moveTo(t,e),s.lineTo(o,n),s.stroke()}var wi=10,bo=40,gi=18,ki=760;function yo(s){let t=d.pairs,e=g=>t.measures.find(I=>I.name===g),o=e(s.measure)??e(t.by)??t.measures[0],n=[...new Set(t.heads.map(Ut))],
i=n.find(g=>g===s.scope),r=s.order!=="layer",l=(r?t.order:t.heads.map((g,I)=>I)).filter(g=>i===void 0||Ut(t.heads[g])===i),c=new Ze(t,o,l,s.pick),h=a("ol",{class:"\
toppairs"}),u=[["cluster","similar heads together"],["layer","by layer"]],p=[["all","all layers"],...n.map(g=>[g,g])],m=a("div",{class:"controls"},X("Measure",t.
measures.map(g=>[g.name,St(g)]),o.name,g=>S({measure:g}),w(St(o),ve(o))),X("Order",u,r?"cluster":"layer",g=>S({order:g==="layer"?g:void 0})),X("Heads",p,i??"all",
g=>S({scope:g==="all"?void 0:g}))),f=a("section",{class:"groups"},U("Most similar pairs"),h),k=a("section",{class:"pairside"},c.box,c.legend(),c.note),b=a("div",
{class:"two"},k,a("div",{},f,yi(t)));return{element:a("div",{},a("p",{class:"lead"},Ue(o)),m,b),start:async()=>{let g=await xe(o);c.show(g);let I=Vs(o,g,l,wi);h.
replaceChildren(...I.map(F=>bi(t,o,F)))},resize:()=>c.draw()}}function bi(s,t,[e,o,n]){let[i,r]=[s.heads[e],s.heads[o]],l=`${St(t)} ${y(n)}`;return a("li",{},a(
"a",{href:xo(i,r)},`${i} and ${r}`),a("span",{class:"value"},l))}var xo=(s,t)=>W({view:void 0,pick:void 0,...Ct(N.get(s)??0),second:t});function yi({groups:s,notes:t}){
let e=i=>i.map((r,l)=>[l?" ":"",a("a",{href:C(N.get(r)??0)},r)]),o=s.length?a("ul",{},s.map(i=>a("li",{},e(i)))):a("p",{class:"dim"},"No two heads are similar e\
nough to form a group."),n=U(`Groups of similar heads (${s.length})`,"group");return a("section",{class:"groups"},n,o,t.map(i=>a("p",{class:"dim"},i)))}var Ze=class{constructor({
heads:t},e,o,n){this.names=o.map(r=>t[r]),this.measure=e,this.order=o,this.picked=n===void 0?-1:this.names.indexOf(n),this.side=bo,this.gutter=40,this.values=null;
let i="Similarity of every two heads; the lists beside it name the most similar.";this.canvas=a("canvas",{class:"pairs",role:"img","aria-label":i}),this.box=a("\
div",{class:"pairbox"},this.canvas),this.note=a("p",{class:"hover"},"Point at a cell for its two heads; click to see them side by side."),this.canvas.addEventListener(
"pointermove",r=>{let l=this.under(r);this.canvas.style.cursor=l?"pointer":"default",l&&this.describe(...l)}),this.canvas.addEventListener("click",r=>{let l=this.
under(r);if(!l)return;let[c,h]=l.map(u=>this.names[u]);location.hash=c===h?C(N.get(c)??0):xo(c,h)})}show(t){this.values=(e,o)=>t(this.order[e],this.order[o]),this.
draw(),this.picked>=0&&this.describe(this.picked,this.picked)}under(t){let[e,o]=ct(t,this.canvas),[n,i]=[Math.floor((e-this.gutter)/this.side),Math.floor((o-this.
gutter)/this.side)],r=this.order.length;return i>=0&&n>=0&&i<r&&n<r?[i,n]:null}describe(t,e){let{values:o,names:n,measure:i}=this;if(!o)return;if(t!==e){this.note.
textContent=`${n[t]} and ${n[e]}: ${St(i)} ${y(o(t,e))}`;return}let r=ee(i)?1:-1,l=n.map((h,u)=>u).filter(h=>h!==t&&!Number.isNaN(o(t,h)));l.sort((h,u)=>r*(o(t,
h)-o(t,u)));let c=l.slice(0,3).map(h=>`${n[h]} ${y(o(t,h))}`);this.note.textContent=`Most similar to ${n[t]}: ${c.join(", ")}`}color(t){return Number.isNaN(t)?$(
"--line"):this.measure.low<0?dt("signed",(t+1)/2):dt("measure",ee(this.measure)?1-t:t)}legend(){let{low:t}=this.measure,e=Rt(l=>this.color(t+l*(1-t))),o=l=>a("s\
pan",{class:"dim"},l),n=t<0?["−1, opposite","1, the same"]:["0, unrelated","1, the same"],[i,r]=ee(this.measure)?["0, the same","1, nothing in common"]:n;return a(
"p",{class:"legend"},o(i),e,o(r))}draw(){let{values:t,names:e}=this;if(!t)return;let o=e.length,n=z(this.canvas,10,10);n.font=`10px ${D}`,this.gutter=gi+8+Math.
ceil(Math.max(32,...e.map(u=>n.measureText(u).width)));let i=Math.min(this.box.clientWidth||600,ki);this.side=Math.max(1,Math.min(bo,(i-this.gutter)/o));let{side:r,
gutter:l}=this;z(this.canvas,l+r*o,l+r*o);let c=r>12?r-1:r+.5;for(let u=0;u<o;u+=1)for(let p=0;p<o;p+=1)n.fillStyle=this.color(u===p?NaN:t(u,p)),n.fillRect(l+p*
r,l+u*r,c,c);n.font=`600 12px ${D}`,n.fillStyle=$("--ink"),n.textBaseline="middle",n.textAlign="center",n.fillText("head",l+r*o/2,7),rt(n,"head",7,l+r*o/2),n.font=
`10px ${D}`;let h=Math.max(1,Math.ceil(13/r));for(let u=0;u<o;u+=h)n.fillStyle=$(u===this.picked?"--ink":"--dim"),n.textAlign="right",n.fillText(e[u],l-4,l+(u+.5)*
r),n.textAlign="left",rt(n,e[u],l+(u+.5)*r,l-4);this.picked<0||(n.strokeStyle=$("--mark"),n.lineWidth=1.5,n.strokeRect(l,l+this.picked*r,r*o,r))}};var xi=["before","after"],vi="Point at a square to read its weight; click it to choose its row.",Se=class{constructor(t,e,o="trained model"){this.read=e,this.names=
{before:o,after:"with your switches"},this.title=a("h2",{}),this.said=a("p",{class:"cellnote"}),this.panes=xi.map(r=>{let l=new Ft({point:h=>this.say(r,h),pick:([
h])=>t(h),drawn:()=>{}}),c=a("h3",{},this.names[r]);return{which:r,view:l,name:c,box:a("div",{class:"pane"},c,l.box)}});let[n,i]=this.panes;this.box=a("section",
{class:"maps"},a("div",{class:"inputtop"},this.title,w("attention map")),a("div",{class:"panes"},n.box,i.box),this.said)}update(t,e,o,n){this.title.textContent=
`Where ${t} looks`;for(let{which:i,view:r,box:l}of this.panes){let c=o[i];l.hidden=!c,c&&(r.show(c),r.canvas.setAttribute("aria-label",`Attention map of ${t}, ${this.
names[i]}. ${n}`),r.mark={row:e,column:null},r.draw())}this.say("after",null)}say(t,e){this.said.textContent=e?this.read(t,e):vi}};var Me=["uniform","previous","first"];var vo=s=>Array.from({length:s},(t,e)=>s-e).filter(t=>s%t===0);var $o={uniform:"all words equally",previous:"previous word",first:"first word"},Te=class{constructor(t,e,o=n=>`Layer ${n}`){this.layers=t,this.title=o,this.handlers=
e,this.cells=t.map((r,l)=>r.map((c,h)=>this.cell(c,l,h))),this.bars=t.map((r,l)=>this.bar(l,r.length)),this.pattern=a("select",{"aria-label":"where the chosen h\
ead looks"}),this.pattern.append(a("option",{value:""},"as it was trained"),...Me.map(r=>a("option",{value:r},$o[r]))),this.pattern.addEventListener("change",()=>{
let r=Me.find(l=>l===this.pattern.value)??null;e.pattern?.(this.at[0],this.at[1],r)}),this.patternName=a("span",{});let n=a("div",{class:"choice detail"},a("lab\
el",{},this.patternName,this.pattern));n.append(w("pattern by hand"));let i=t.map((r,l)=>{let c=a("div",{class:"switchrow"},...this.cells[l].map(({box:h})=>h));
return c.style.setProperty("--heads",String(r.length)),a("div",{class:"switchlayer"},this.bars[l].box,c)});this.box=a("div",{class:"switches"},...i,e.pattern?n:
null),this.kinds=$i(t.flat()),this.at=[0,0]}cell({name:t,shown:e,kind:o,label:n},i,r){let l=a("span",{class:"dot"});o&&(l.style.backgroundColor=bt(o));let c=a("\
button",{type:"button",class:"headname","data-head":t,onclick:()=>this.handlers.select(i,r)},a("b",{},l,e??t),o?a("small",{},n??o):null),h=a("input",{type:"chec\
kbox","aria-label":`${t} on`,"data-switch":t});h.addEventListener("change",()=>this.handlers.scale(i,r,h.checked?1:0));let u=a("input",{type:"range",min:0,max:1,
step:.05,"aria-label":`strength of ${t}`,"data-scale":t,oninput:()=>{p.textContent=y(Number(u.value)),this.handlers.scale(i,r,Number(u.value))}}),p=a("span",{class:"\
strength"});return{box:a("div",{class:"switch"},a("div",{class:"switchtop"},c,h),u,p),choose:c,on:h,slider:u,value:p}}bar(t,e){let o=a("input",{type:"checkbox",
"data-merge":t});o.addEventListener("change",()=>this.handlers.merge?.(t,o.checked));let n=a("select",{"data-share":t});for(let l of vo(e))n.append(a("option",{
value:l},String(l)));n.addEventListener("change",()=>this.handlers.share?.(t,Number(n.value)));let i=t===0;return{box:a("div",{class:"layerbar"},a("b",{},this.title(
t)),this.handlers.merge?a("span",{class:"toggle"},a("label",{},o,a("span",{},"one head")),i?w("one head"):null):null,this.handlers.share?a("span",{class:"choice"},
a("label",{},a("span",{},"keys/values"),n),i?w("keys/values"):null):null),merge:o,share:n}}update(t,e,o){this.at=[e,o],this.cells.forEach((n,i)=>n.forEach(({box:r,
choose:l,on:c,slider:h,value:u},p)=>{let{scale:m,pattern:f}=t[i].heads[p];c.checked=m>0,h.value=String(m),u.textContent=f?$o[f]:y(m),r.classList.toggle("isoff",
m===0),r.classList.toggle("changed",m!==1||f!==null),l.setAttribute("aria-pressed",String(i===e&&p===o))})),this.bars.forEach(({merge:n,share:i},r)=>{n.checked=
t[r].merged,i.value=String(t[r].kvHeads)}),this.pattern.value=t[e].heads[o].pattern??"",this.pattern.disabled=t[e].merged,this.patternName.textContent=`${this.layers[e][o].
name} looks`}};function $i(s){let t=new Map;for(let n of s){let i=n.group??n.label;i&&!t.has(i)&&t.set(i,n)}let e=[...t].map(([n,{kind:i,meaning:r}])=>{let l=a(
"span",{class:"dot"});return i&&(l.style.backgroundColor=bt(i)),a("span",{class:"kindkey"},l,n," ",w(n,r))}),o=a("span",{class:"dim"},"Kinds ",w("kind"));return e.
length?a("p",{class:"kindkeys"},o,...e):null}function So(s,...t){let e=[...s.querySelectorAll("button")].findIndex(o=>o===document.activeElement);s.replaceChildren(...t),e>=0&&s.querySelectorAll("button")[e]?.
focus()}var Si=24;function To(s,t,e="trained model"){return[...s.map(({word:n,before:i,after:r,actual:l})=>a("div",{class:l?"guess actual":"guess","data-word":n},a("spa\
n",{class:"guessed"},n,l?a("small",{}," (in the text)"):null),a("span",{class:"barpair"},Ae("before",i),t?Ae("after",r):null),a("span",{class:"chance"},Mo(i),t?
a("b",{},Mo(r)):null))),ts(t,e)]}var ts=(s,t)=>a("p",{class:"dim legendline"},a("span",{class:"swatch before"}),s?` ${t}`:` ${t}: no switch is changed`,s?a("spa\
n",{class:"swatch after"}):null,s?" with your switches":null);function Ao(s,t,e,o){let n=e.slice(0,Si).map(({token:l,text:c})=>a("button",{type:"button",class:"\
suggestion",onclick:()=>o(l)},c)),i=e.length-n.length,r=i>0?a("span",{class:"dim"},` and ${i} more`):"";So(s,a("p",{},t),...n,r)}var Mo=s=>s<.001?"< 0.1 %":it(
s,s<.01?1:2);function Ae(s,t){let e=a("span",{class:`bar ${s}`});return e.style.width=`${Math.max(.5,100*t)}%`,e}var Mi=200;function Ti(s){let t=new Map;for(let e of s.split(",")){let[o,n]=e.split(":"),[i,r]=[N.get(o),Number(n)];i!==void 0&&n&&r>=0&&r<1&&t.set(i,r)}return t}
var Ee=class{constructor(){this.scales=new Map,this.past=[]}restore(t){t!==void 0&&t!==this.text&&(this.scales=Ti(t))}get text(){return[...this.scales].sort(([t],[
e])=>t-e).map(([t,e])=>`${d.heads[t]}:${Number(e.toFixed(2))}`).join(",")}get byName(){return Object.fromEntries([...this.scales].map(([t,e])=>[d.heads[t],e]))}get settings(){
let t=d.sites.map(({heads:e})=>({heads:[],merged:!1,kvHeads:e}));return v.forEach(({site:e},o)=>t[e].heads.push({scale:this.scales.get(o)??1,pattern:null})),t}set(t,e){
let o=new Map(this.scales);o.delete(t),e<1&&o.set(t,e),this.change(o)}reset(){this.scales.size&&this.change(new Map)}change(t){this.past.push(this.scales),this.
past.length>Mi&&this.past.shift(),this.scales=t}undo(){this.scales=this.past.pop()??this.scales}};var Ai=60,Eo=2048,es=4,ss="unchanged model",Ei="The encoder reads one text, the decoder writes the other word by word. ",Oi=" This model has a prediction for ev\
ery token: choose one.",Ci={next:"This model predicts the next token. The bars show the likeliest tokens after the chosen one.",masked:"This model fills in hidd\
en tokens. The chosen token is hidden from it, and the bars show what it takes it for. For the list, every other token is hidden in turn.",classes:"This model s\
orts its input into classes. The bars show the likeliest classes.",vector:"This model has no prediction of words to compare: it turns its input into a vector. T\
he cosine compares the vector with your switches to that of the unchanged model: 1 is the same direction, 0 an unrelated one."},J=new Ee,os=s=>a("h2",{class:"se\
quencename"},s),Li=({shown:s})=>s.some((t,e)=>t!==String(e));function qi(s){let{stack:t,layer:e}=d.sites[s];return t?t==="cross"?`Cross-attention, layer ${e}`:`${t[0].
toUpperCase()}${t.slice(1)} layer ${e}`:`Layer ${e}`}function Oo(s){let t=new ns(s);return{element:t.element,start:()=>t.ask(),resize:()=>t.drawMaps(),stop:()=>t.
stop()}}var ns=class{constructor(t){J.restore(t.scale),this.text=Ht(t);let{sequences:e,layers:o}=d.texts[this.text];this.predicted=o[o.length-1].rows,this.sequence=
e[this.predicted],this.source=this.predicted?e[0]:null,this.head=Vt(t)??0,this.token=Z(t.row,this.sequence.shown.length)??this.lastWord(),this.abort=new AbortController,
this.timer=0,this.answer=null,this.maps={before:null,after:null};let n=l=>this.choose(l);this.tokens=new ft(this.sequence,{hover:()=>{},pick:n,label:"Tokens; ch\
oose one"});let i=l=>this.sameSequence&&n(l);this.pair=new Se(i,(l,c)=>this.read(l,c),ss),this.grid=d.heads.length>Eo?null:this.makeGrid();let r=l=>()=>this.act(
l);this.undo=a("button",{type:"button",id:"undo",onclick:r(()=>J.undo())},"Undo"),this.reset=a("button",{type:"button",id:"reset",onclick:r(()=>J.reset())},"Res\
et"),this.title=a("h2",{}),this.meaning=a("p",{class:"dim"}),this.bars=a("div",{class:"predictions"}),this.list=a("div",{class:"changes"}),this.fault=a("p",{class:"\
note",role:"alert"}),this.prediction=a("section",{class:"prediction","aria-label":"prediction","aria-busy":"true"},a("div",{class:"inputtop"},this.title),this.fault,
this.meaning,this.bars,this.list),this.element=this.layout(),this.show()}layout(){let t=`The grid is for up to ${Eo} heads; this model has ${d.heads.length}.`,e=a(
"section",{class:"heads","aria-label":"heads"},a("div",{class:"inputtop"},a("h2",{},"Heads"),w("switch"),this.undo,this.reset),this.grid?.box??a("p",{class:"dim"},
t),this.grid?.kinds),o="Switch a head off, or scale what it writes, and see what the model does without it. The model itself runs again after every change.",n=a(
"div",{class:"controls"},Wt(this.text));n.querySelector("details")?.setAttribute("open",""),n.querySelector("textarea")?.setAttribute("rows","2");let i=a("div",
{class:"switchview"},a("p",{class:"lead"},o),n,this.tokens.box);i.append(a("div",{class:"two"},e,this.prediction),this.pair.box);let{note:r}=d.texts[this.text];
return r&&this.tokens.box.before(a("p",{class:"note textnote"},P(r))),!(d.served?.includes("text")||this.source)&&!Li(this.sequence)&&this.tokens.box.prepend(os(
"Positions of the input")),this.source&&this.tokens.box.before(this.sourceText(this.source)),i.addEventListener("keydown",c=>this.onKey(c)),i}sourceText(t){let e=new ft(
t,{hover:()=>{},pick:()=>{},label:"Tokens of the encoder"});return this.tokens.box.prepend(os("The decoder has read")),e.box.prepend(os("The encoder reads")),e.
box}makeGrid(){let t=d.sites.map((o,n)=>Array.from({length:o.heads},(i,r)=>{let l=G[n]+r,c=ht(q(l)),h={group:B(c),meaning:Jt(c)},u=c?{kind:q(l),label:Q(l),...h}:
{},p=d.heads[l];return{name:p,shown:p.replace(/^.*\./,""),...u}})),e={select:(o,n)=>this.act(()=>this.head=G[o]+n),scale:(o,n,i)=>this.act(()=>{this.head=G[o]+n,
J.set(this.head,i)})};return new Te(t,e,qi)}get sameSequence(){return d.texts[this.text].layers[v[this.head].site].rows===this.predicted}lastWord(){let{special:t}=this.
sequence,e=t.lastIndexOf(!1);return e<0?t.length-1:e}choose(t){this.act(()=>this.token=t)}act(t){t(),this.show(),this.abort.abort(),this.prediction.setAttribute(
"aria-busy","true"),clearTimeout(this.timer),this.timer=window.setTimeout(()=>this.ask(),Ai)}stop(){clearTimeout(this.timer),this.abort.abort()}show(){let{site:t,
head:e}=v[this.head];this.grid?.update(J.settings,t,e),this.undo.disabled=!J.past.length,this.reset.disabled=!J.scales.size,this.paintText()}paintText(){let{cosines:t}=this.
answer??{};t&&J.scales.size?this.tokens.paint(Float32Array.from(t,e=>1-e),null):this.tokens.paint(null,this.token)}async ask(){this.abort.abort(),this.abort=new AbortController;
let{signal:t}=this.abort,{head:e,token:o,text:n}=this;kt({...Ct(e),row:String(o),scale:J.text||void 0});let i=d.heads[e],r=J.scales.size>0,l={text:d.texts[n].at??
n,scales:J.byName,token:o};try{let c=await Ps(r?{...l,head:i}:l,t),h=c.map===null?null:await re(c.map),u=await mt(n,e).catch(()=>null);if(t.aborted)return;this.
answer=c;let p=d.texts[n].layers[v[e].site];this.maps={before:u,after:h&&pt.fromCodes(i,d.texts[n],p,h)},this.fault.textContent=""}catch(c){if(Xt(c)||t.aborted)
return;this.answer=null,this.maps={before:null,after:null},this.fault.textContent=c instanceof Error?c.message:String(c)}this.draw(r),this.prediction.setAttribute(
"aria-busy","false")}draw(t){let{answer:e}=this;this.bars.replaceChildren(),this.list.replaceChildren();let o=e?.vector?` The vector: ${e.vector}.`:"",n=this.source&&
e?.reading==="next"?Ei:"",i=e?.reading==="classes"&&(e.rows??1)>1?Oi:"";this.meaning.textContent=e?n+Ci[e.reading]+i+o:"",this.title.textContent=e?this.heading(
e):"No prediction",e?.top&&this.drawTop(e,t),e?.cosine!==void 0&&this.drawCosine(e.cosine,e.change??0,t);let r=e&&t?this.changes(e):[];if(e&&t){let c=this.changeTitle(
e,r.length);Ao(this.list,c,r,h=>this.choose(h)),ot(c)}let l=new Set(e?.changed?.map(({token:c})=>c));this.paintText(),this.tokens.spans.forEach((c,h)=>c.classList.
toggle("switched",l.has(this.tokens.from+h))),this.drawMaps()}heading({reading:t,rows:e}){let o=`“${this.word(this.token)}”`;return t==="vector"?"The vector\
 of the input":t==="classes"?(e??1)>1?`The class of ${o}`:"The class of the input":t==="next"?`Next token after ${o}`:`In place of ${o}`}drawTop({top:t=[],actual:e},o){
let n=t.map(({id:i,word:r,before:l,after:c})=>({word:M(r,16),before:l,after:c,actual:i===e}));this.bars.replaceChildren(...To(n,o,ss))}drawCosine(t,e,o){let n=(l,c)=>a(
"div",{class:"guess"},a("span",{class:"guessed"},"cosine"),a("span",{class:"barpair"},Ae(l,Math.max(0,c))),a("span",{class:"chance"},a("b",{"data-cosine":l},c.toFixed(
es)))),i=o?[n("before",1),n("after",t)]:[n("before",1)],r=`The vector moved by ${it(e,2)} of its length.`;this.bars.replaceChildren(...i,ts(o,ss),o?a("p",{},r):
"")}changes({changed:t,cosines:e,reading:o,rows:n=1}){let i=r=>M(this.word(r),20);if(t){let r=(c,h)=>`${M(c,20)} → ${M(h,20)}`,l=c=>n===1&&o==="classes"?"":`${i(
c)}: `;return t.map(({token:c,before:h,after:u})=>({token:c,text:l(c)+r(h,u)}))}return(e??[]).map((r,l)=>({token:l,cosine:r,text:`${i(l)} ${r.toFixed(es)}`})).filter(
({cosine:r})=>1-r>=.5*10**-es).sort((r,l)=>r.cosine-l.cosine)}changeTitle({reading:t,shown:e,cosines:o,rows:n=1},i){let r=`${i} of ${Y(e.length,"token")}`;return t===
"vector"?o?i?`The vectors of ${r} turned; the text is shaded by it. Their cosines, the most turned first:`:"No token's vector turned.":"This model returns one v\
ector for the whole input.":t==="classes"&&n===1?`The likeliest class ${i?"changed:":"is the same."}`:t==="classes"?`The likeliest class ${i?`of ${r} changed:`:
"is the same everywhere."}`:i?t==="next"?`The likeliest next token changed after ${r}:`:`Another token fills ${r}:`:"The likeliest token is the same everywhere."}drawMaps(){
if(this.pair.box.hidden=!this.maps.before,!this.maps.before)return;let t="The view of this head has the same weights.",e=this.sameSequence?this.token:null;this.
pair.update(d.heads[this.head],e,this.maps,t)}read(t,e){let o=this.maps[t];if(!o)return"";let[n,i]=[o.rows.shown[e[0]],o.columns.shown[e[1]]].map(r=>`“${M(r,24)}\
”`);return`${n} looks at ${i} with weight ${y(o.row(e[0])[e[1]])}`}word(t){return this.sequence.shown[t]}onKey(t){t.key.toLowerCase()!=="z"||!(t.ctrlKey||t.metaKey)||
t.shiftKey||t.target instanceof HTMLTextAreaElement||(t.preventDefault(),this.act(()=>J.undo()))}};var Co={holds:"✓ holds",fails:"✗ fails","holds only if":"~ conditional"},Lo=s=>Object.hasOwn(Co,s)?Co[s]:s;function qo(){let{about:s,statements:t}=d.theory,
e=["#","statement","verdict","as computed","as stated"].map(c=>{let h=c==="#"?null:[" ",w(c)];return a("th",{scope:"col"},c,h)}),o=a("tbody",{},t.map(Ii)),n=a("\
table",{class:"theory"},a("thead",{},a("tr",{},e)),o),i=`Statements about multi-head attention from papers and textbooks. Both sides were computed on this model\
: ${Ni(t)}. Click a statement for its formula and the result of each layer.`,r={class:"scroll wide",tabindex:"0",role:"region","aria-label":"Statements and verd\
icts"},l=[a("p",{class:"lead"},i),a("p",{class:"dim"},s)];return{element:a("div",{},l,a("div",r,n))}}function Ni(s){let t=new Map;for(let{verdict:e}of s)t.set(e,
(t.get(e)??0)+1);return[...t].map(([e,o])=>e==="holds only if"?`${o} ${o===1?"holds":"hold"} under a condition`:e==="holds"||e==="fails"?`${o} ${o===1?e:e.slice(
0,-1)}`:`${o} ${o===1?"has":"have"} ${e}`).join(", ")}function Ii(s){let{id:t,title:e,formula:o,verdict:n,tally:i}=s,r=Object.entries(s.layers),[l,c]=r.find(([,
f])=>f.verdict===n)??r[0],h=s.holds_when.replace(/\.$/,""),u=r.map(([f,k])=>a("tr",{},a("th",{scope:"row"},f),a("td",{},Lo(k.verdict)),a("td",{},k.lhs),a("td",{},
k.rhs))),p=a("details",{},a("summary",{},e),a("code",{},o),a("p",{},c.because));h&&p.append(a("p",{class:"dim"},`True when ${h}.`)),p.append(a("table",{class:"l\
ayers"},a("tbody",{},u)));let m=i.replace(/^(holds|fails|conditional)/,f=>Lo(f==="conditional"?"holds only if":f));return a("tr",{class:`verdict ${n.replaceAll(
" ","-")}`,"data-key":t},a("th",{scope:"row"},t),a("td",{class:"statement"},p),a("td",{class:"result"},m),a("td",{title:l},c.lhs),a("td",{},c.rhs))}var No=1024;function Io(s){let t=new is(s,Ht(s)),e=l=>S({hide:l?"1":void 0}),o=Bt("hide delimiters",t.hide,e,w("hide delimiters")),n=a("div",{class:"controls"},
Wt(t.text),ro(t.looks),o),r=a("div",{class:"tokensview"},a("p",{class:"lead"},"Click a token of the text. Each box is a head and shows the token with the larges\
t weight: the darker the box, the larger the weight. Click a box to open its head."),n);return r.append(t.tokens.box,t.spoken,Ri(),t.table),{element:r,start:()=>t.
choose(t.token),stop:()=>t.stop()}}var is=class{constructor(t,e){this.text=e,this.looks=t.dir!==zt,this.hide=t.hide==="1",this.live=!0,this.turn=0,this.sequence=
d.texts[e].sequences[0];let o=this.sequence.special.findIndex((i,r)=>!i&&r>0);this.token=Z(t.row,this.sequence.shown.length)??Math.max(0,o);let n=i=>{kt({row:String(
i)}),this.choose(i)};this.tokens=new ft(this.sequence,{hover:()=>{},pick:n,label:"Tokens of the text"}),this.spoken=a("p",{class:"said",role:"status"}),this.boxes=
[],this.table=d.heads.length>No?Pi():this.makeTable()}makeTable(){let t=1+Math.max(...v.map(l=>l.number)),e=Array.from({length:t},(l,c)=>a("th",{scope:"col"},String(
c))),o=a("td",{class:"corner"},"layer ↓ head →"),n=d.sites.map((l,c)=>{let h=Array.from({length:t},()=>a("td"));for(let u=G[c];u<G[c]+l.heads;u+=1){let p=a(
"a",{href:C(u),"aria-label":d.heads[u]});this.boxes.push(p),h[v[u].number].append(p)}return a("tr",{},a("th",{scope:"row"},l.label),h)}),i=a("table",{class:"tie\
s"},a("thead",{},a("tr",{},o,e)),a("tbody",{},n));return a("div",{class:"scroll wide",tabindex:"0",role:"region","aria-label":"The token with the largest weight\
, for every head"},i)}stop(){this.live=!1}async choose(t){this.token=t,this.turn+=1;let{turn:e,looks:o}=this,n=`“${M(this.sequence.shown[t],40)}”, token ${t}\
.`,i=new Float32Array(this.sequence.shown.length),r=0;this.tokens.paint(null,t);for(let c=0;c<this.boxes.length;c+=1){let h=await Nt(this.text,c).catch(()=>null);
if(!this.live||e!==this.turn)return;let[u,p]=h?o?[h.rows,h.columns]:[h.columns,h.rows]:[null,null];if(!h||!p||u!==this.sequence)continue;if(h instanceof j&&!o){
this.spoken.textContent=`${n} On a text this long, open a head to see who looks at a token.`;return}o||await h.complete();let m=await $t(h.reweighted(!1,this.hide),
o,t).catch(()=>null);if(!m||!this.live||e!==this.turn)return;if(this.showBox(c,m,p),r+=1,p===this.sequence)for(let f=0;f<i.length;f+=1)i[f]+=m[f]}this.tokens.paint(
i.map(c=>c/Math.max(1,r)),t);let l=o?"where it looks":"who looks at it";this.spoken.textContent=`${n} Shaded: ${l}, the mean over all heads.`}showBox(t,e,o){let n=0;
for(let l=1;l<e.length;l+=1)e[l]>e[n]&&(n=l);let i=this.boxes[t],r=Ro(e[n]);i.textContent=M(o.shown[n],7),i.href=W({view:void 0,...Ct(t),row:String(this.token)}),
i.title=`${d.heads[t]}: ${M(o.shown[n],60)} ${y(e[n])}`,i.setAttribute("aria-label",i.title),i.style.backgroundColor=Po(r),i.classList.toggle("strong",r>55)}},Ro=s=>Math.
round(78*s**x.weight_exponent),Po=s=>`color-mix(in srgb, var(--shade) ${s}%, transparent)`;function Ri(){let s=[.01,.1,.25,.5,1].map(e=>{let o=a("span",{},String(
e));return o.style.backgroundColor=Po(Ro(e)),o});return a("p",{class:"shading"},a("span",{class:"steps"},s)," ","largest weight of the head, square-root scale ",
w("shading"))}var Pi=()=>a("p",{class:"dim"},`This view is for up to ${No} heads; this model has ${d.heads.length}.`);var ji=()=>d.served!==null&&d.texts.some(Boolean),Oe=[{key:"heads",title:"Heads",make:fo,has:()=>!0},{key:"tokens",title:"Tokens",make:Io,has:()=>d.texts.length>
0},{key:"switches",title:"Switches",make:Oo,has:ji},{key:"similarity",title:"Similarity",make:yo,has:()=>d.pairs!==null},{key:"pruning",title:"Pruning",make:go,
has:()=>d.curve!==null||d.cost!==null},{key:"theory",title:"Theory",make:qo,has:()=>d.theory!==null}],Tt=null,rs=0;function _i(s,t){let e=Oe.find(o=>o.key===s.view&&
o.has());return e||(t===null?Oe[0]:null)}async function Ce(){let s=performance.now();rs+=1;let t=rs,e=he(),o=Vt(e),n=_i(e,o),i=!n&&o!==null?Tt?.moveTo?.(e,o):null,
r=n?.key??"head";i||(Tt?.stop?.(),Tt=n||o===null?(n??Oe[0]).make(e):io(e,o),R("main").replaceChildren(Tt.element));for(let l of R("views").querySelectorAll("a"))
l.href=_o(l.dataset.view??"heads",e.text),l.dataset.view===(n?.key??"heads")?l.setAttribute("aria-current","page"):l.removeAttribute("aria-current");document.body.
dataset.view=r,await(i??Tt?.start?.()),t===rs&&(!n&&o!==null&&ot(ge(o)),document.body.dataset.ready=`${r} ${location.hash}`,document.body.dataset.took=(performance.
now()-s).toFixed(1))}var _o=(s,t)=>`#view=${s}${t?`&text=${encodeURIComponent(t)}`:""}`,Fi="This page is incomplete: the run was stopped before everything was m\
easured.";function Hi(){let{notes:s,model:t,version:e,made:o}=d,n=d.stopped?[Fi]:[];R("card").replaceChildren(...Wi()),R("findings").replaceChildren(...n.map(h=>a(
"p",{class:"finding note"},h)),...Di());let i=()=>document.documentElement.dataset.theme==="dark"?"light":"dark";R("tools").replaceChildren(a("button",{type:"bu\
tton",id:"theme",onclick:()=>as(i())},"Light / dark"),a("button",{type:"button",onclick:()=>window.print()},"Print"));let l=Oe.filter(h=>h.has()).map(({key:h,title:u})=>a(
"a",{href:_o(h),"data-view":h},u));R("views").replaceChildren(...l),R("foot").replaceChildren(...[...n,...s].map(h=>a("p",{class:"note"},h)),a("p",{},`multihead\
 ${e}, ${o}. ${t.class}. On a head, arrow keys move to other heads and layers, and Esc leads back to all heads. The URL saves this view.`))}function Wi(){let{model:s,
corpus:t,sites:e,heads:o}=d,n=e.reduce((p,m)=>p+m.kv,0),i=new Set(e.map(p=>p.heads)),r=[...i][0],l=i.size===1?`${Y(e.length,"layer")} × ${Y(r,"head")}`:`${o.length}\
 heads in ${Y(e.length,"layer")}`,c=Y(t.documents,"document"),h=t.tokens?`${t.tokens.toLocaleString("en")} tokens in ${c}`:c;return[[Kt(s.parameters),"parameter\
s","parameters"],[l,"","head"],[String(n),n===o.length?"kv heads, one each":"kv heads","kv heads"],[h,t.name?`of ${M(t.name,60)}`:"","token"]].map(([p,m,f])=>a(
"span",{},a("b",{},p),` ${m} `,w(f)))}var jo={heads:"Show heads →",similarity:"Show similarity →",pruning:"Show pruning →",theory:"Show theory →"};function Di(){
return d.findings.map(({text:s,link:t})=>{let e=new URLSearchParams(t.slice(1)).get("view")??"",o=Object.hasOwn(jo,e)?jo[e]:"Show head →",n=a("span",{},zi(s.replace(
/(\d) %/g,"$1 %"))),i=a("a",{class:"arrow",href:t,onclick:()=>R("views").scrollIntoView()},o);return a("div",{class:"finding"},n,i)})}function zi(s){return s.split(
/([\w.]*L\d+H\d+)/).map(t=>{let e=N.get(t);return e===void 0?t:a("a",{href:C(e)},t)})}function as(s){document.documentElement.dataset.theme=s,Es(),Tt?.stop?.(),
Tt=null,d&&Ce()}function Bi(s){if(ie(s,"input, select, textarea, .tokens, canvas.grid, [contenteditable]")||s.altKey||s.ctrlKey||s.metaKey||s.shiftKey)return;let t=Vt(
he());if(document.body.dataset.view!=="head"||t===null)return;s.key==="Escape"&&S(de);let e=ce[s.key];e&&(s.preventDefault(),history.replaceState(null,"",C(Ot(t,
e))),Ce())}async function Ui(){let s=window.matchMedia("(prefers-color-scheme: dark)");if(as(s.matches?"dark":"light"),s.addEventListener("change",()=>as(s.matches?
"dark":"light")),typeof DecompressionStream>"u"){R("main").append(a("p",{class:"lead"},"This browser is too old for this page. Use Chrome 111, Safari 16.4, Fire\
fox 113 or a newer one."));return}await ms(),Hi(),Ce(),window.addEventListener("hashchange",()=>location.hash!=="#main"&&Ce()),window.addEventListener("keydown",
Bi);let t=0;window.addEventListener("resize",()=>{clearTimeout(t),t=window.setTimeout(()=>Tt?.resize?.(),80)})}async function Vi(s,t=0,{norm:e=!1,hide:o=!1}={}){
let n=await mt(t,N.get(s)??-1);if(!n||n instanceof j)return null;let i=n.reweighted(e,o);return Array.from({length:n.queries},(r,l)=>Array.from(i.row(l)))}async function Ki(s,t,e=0,{
norm:o=!1,hide:n=!1,looks:i=!0}={}){let l=await(i?Nt:mt)(e,N.get(s)??-1);return l&&Array.from(await $t(l.reweighted(o,n),i,t))}Object.defineProperty(window,"mul\
tihead",{value:Object.freeze({weights:Vi,row:Ki,get data(){return d}})});Ui();})();
