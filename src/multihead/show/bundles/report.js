"use strict";(()=>{function P(s){let t=document.getElementById(s);if(!t)throw new Error(`the page has no element #${s}`);return t}function a(s,t={},...e){let n=document.createElement(
s);for(let[o,i]of Object.entries(t))i==null||i===!1||(typeof i=="function"?n.addEventListener(o.slice(2),i):n.setAttribute(o,i===!0?"":String(i)));return fs(n,e),
n}function fs(s,t){for(let e of t)Array.isArray(e)?fs(s,e):e!=null&&s.append(e)}function F(s,t={},...e){let n=document.createElementNS("http://www.w3.org/2000/s\
vg",s);for(let[o,i]of Object.entries(t))n.setAttribute(o,String(i));return n.append(...e),n}function X(s,t,e,n,o,i=[]){let r=a("select",{onchange:()=>n(r.value)}),
l=(c,h)=>{for(let[d,p]of h){let m=a("option",{value:d},p);m.selected=d===e,c.append(m)}};if(l(r,t),i.length){let c=a("optgroup",{label:"more"});l(c,i),r.append(
c)}return a("div",{class:"choice"},a("label",{},a("span",{},s),r),o)}function Ut(s,t,e,n){let o=a("input",{type:"checkbox",onchange:()=>e(o.checked)});return o.
checked=t,a("div",{class:"toggle"},a("label",{},o,a("span",{},s)),n)}function st(s){P("live").textContent=s}var Kn=60,ne=()=>new Promise(s=>setTimeout(s,Kn));function oe(){
return new Promise(s=>requestAnimationFrame(()=>setTimeout(s)))}function ie(s,t){let e=a("a",{href:URL.createObjectURL(s),download:t});e.click(),setTimeout(()=>URL.
revokeObjectURL(e.href),1e4)}function at(s,t){let e=t.getBoundingClientRect();return[s.clientX-e.left,s.clientY-e.top]}function re(s,t){return s.target instanceof
Element?s.target.closest(t):null}var ws=null,gs=Uint8Array;async function ae(s){let t=gs.fromBase64?gs.fromBase64(s):Uint8Array.from(atob(s),n=>n.charCodeAt(0)),e=new Response(t).body;return new Uint8Array(
await new Response(e.pipeThrough(new DecompressionStream("deflate-raw"))).arrayBuffer())}async function ks(){let s=P("data"),t=JSON.parse(new TextDecoder().decode(
await ae(s.textContent??"")));return s.remove(),t}function At(s){return ws??=(P("lines").textContent??"").split(`
`),ae(ws[s])}var wt=s=>new Float32Array(s.buffer,s.byteOffset,s.byteLength/4),Re=s=>new Uint32Array(s.buffer,s.byteOffset,s.byteLength/4),Gn=Float64Array.from({
length:32},(s,t)=>2**((t||1)-25));function bs(s){let t=s.length/2,e=new Float32Array(t);for(let n=0;n<t;n+=1){let o=s[n]<<8|s[t+n],i=o>>10&31,r=((i?1024:0)+(o&1023))*
Gn[i];e[n]=o&32768?-r:r}return e}var y;function ys(s){y=s}var u,v=[],N=new Map,G=[],nt=new Set;async function xs(){u=await ks(),ys(u.charts),u.served&&(u.texts=Yn(u.texts)),N=new Map(u.heads.map((s,t)=>[s,t])),v=[],G=[],
u.sites.forEach((s,t)=>{G.push(v.length);for(let e=0;e<s.heads;e+=1)v.push({site:t,head:e,number:Qn(u.heads[v.length])})}),nt=Jn()}function Yn(s){let t=[];for(let e of s)
t[e.at??0]=e;return t}var Qn=s=>Number(/H(\d+)$/.exec(s)?.[1]??0),Vt=s=>s.replace(/H\d+$/,"");function Jn(){let s=u.curve,t=s?.curves[0];if(!s||!t)return new Set(
[]);let e=t.points.find(n=>n.gone===s.prunable);return new Set(e?.heads??t.order.slice(0,s.prunable))}function C(s){return s&&u.table&&Object.hasOwn(u.table,s)?
u.table[s]:null}var Et=(s,t)=>C(s)?.values[t]??null;function T(s,t){let e=Et(s,t);return typeof e=="number"?e:null}function _(s,t){let e=Et(s,t);return typeof e==
"string"?e:""}var le=s=>u.heads.map((t,e)=>T(s,e)),vs=()=>Object.keys(u.table??{}).filter(s=>C(s)?.values.some(t=>typeof t=="number"));function $s(s,t){let e=C(
s)?.why??{};return Object.keys(e).find(n=>e[n].includes(u.heads[t]))??""}var R=s=>_("kind",s),Ss=s=>[R(s),_("kind_detail",s)].filter(Boolean).join(" "),gt=s=>T(
u.importance,s);function ce(s){let t=u.importance?T(`${u.importance}_error`,s):null;return t===null?null:1.96*t}function lt(s,[t,e]){let n=v[s],o=u.sites.length,
i=(n.site+t+o)%o,r=u.sites[i].heads,l=t?Math.min(n.head,r-1):(n.head+e+r)%r;return G[i]+l}var Nt={ArrowRight:[0,1],ArrowDown:[1,0],ArrowLeft:[0,-1],ArrowUp:[-1,
0]};var Xn=400,It=null,Ts=0,he=()=>It?.from===location.hash?It.to:location.hash,de=()=>Object.fromEntries(new URLSearchParams(he().slice(1)));function Z(s,t){let e=Number(
s);return s!==void 0&&s!==""&&Number.isInteger(e)&&e>=0&&e<t?e:null}function D(s){return`#${Object.entries({...de(),...s}).filter(([,e])=>e!==void 0&&e!=="").map(
([e,n])=>`${e}=${encodeURIComponent(String(n))}`).join("&")}`}function M(s){location.hash=D(s)}var kt=s=>Ie(D(s));function Ie(s){It={from:location.hash,to:s},Ts||
Ms()}function Ms(){Ts=It?window.setTimeout(Ms,Xn):0,It&&history.replaceState(null,"",he()),It=null}function Ot(s){let{site:t,number:e}=v[s],{stack:n,layer:o}=u.
sites[t];return{stack:n||void 0,layer:String(o),head:String(e)}}var L=s=>D({view:void 0,kind:void 0,share:void 0,pick:void 0,second:void 0,...Ot(s)}),ue={view:"\
heads",layer:void 0,head:void 0,second:void 0,row:void 0};function Kt(s){if(s.layer===void 0||s.head===void 0)return null;let t=v.findIndex(({site:e,number:n})=>{
let{layer:o,stack:i}=u.sites[e];return String(o)===s.layer&&(i||"")===(s.stack||"")&&String(n)===s.head});return t<0?null:t}var Pe=s=>s==null||Number.isNaN(s);function O(s,t=y.format.digits){let{missing:e,plain:n}=y.format;if(Pe(s))return e;let o=Math.abs(s);return o===1/0?s>0?"∞":
"-∞":Number.isInteger(s)&&o<n[1]?String(s):o>=n[1]||o<n[0]?s.toExponential(1).replace("e+","e").replace(".0e","e"):o<10**(t-1)?String(Number(s.toPrecision(t))):
s.toFixed(0)}function x(s){let{missing:t,fraction_digits:e}=y.format;return Pe(s)?t:s.toFixed(e)}var ot=(s,t=2)=>`${O(100*s,t)} %`;function Gt(s){let{prefixes:t}=y.
format;if(Pe(s)||Math.abs(s)===1/0)return O(s);let[e,n]=[s,0];for(;Math.abs(e)>=999.5&&n<t.length-1;n+=1)e/=1e3;return n===0?Number.isInteger(e)?String(e):e.toPrecision(
3):`${e.toPrecision(3)} ${t[n]}`}function A(s,t=24){let e=Array.from(s);return e.length<=t?s:`${e.slice(0,t-1).join("")}…`}var I=s=>s?`${s[0].toUpperCase()}${s.
slice(1)}${/[.!?]$/.test(s)?"":"."}`:"",B=(s,t)=>`${s} ${t}${s===1?"":"s"}`;var Zn=16,z="system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif",Pt=()=>window.devicePixelRatio||1;function Ct(s){let t=s.getContext("2d");if(!t)throw new Error(
"this browser draws no canvas");return t}function W(s,t,e){let n=Pt(),[o,i]=[Math.max(1,Math.round(t*n)),Math.max(1,Math.round(e*n))],r=Ct(s);return s.width===o&&
s.height===i&&s.style.width&&"reset"in r?r.reset():(s.width=o,s.height=i,s.style.width=`${t}px`,s.style.height=`${e}px`),r.setTransform(n,0,0,n,0,0),r}function _t(s,t=160){
let e=a("canvas",{class:"bar","aria-hidden":"true"}),n=W(e,t,10);for(let o=0;o<t;o+=1)n.fillStyle=s(o/(t-1)),n.fillRect(o,0,1,10);return e}function it(s,t,e,n){
s.save(),s.translate(e,n),s.rotate(-Math.PI/2),s.fillText(t,0,0),s.restore()}var bt=()=>parseFloat(getComputedStyle(document.documentElement).fontSize)/Zn;var V={head:"From every token, a head looks at other tokens and takes information from them. A layer has several heads, and each looks at different tokens. L3H7\
 is head 7 of layer 3; both are counted from 0.",layer:"A step of the model. Its heads work in parallel, and the next layer reads their output.",token:"A word o\
r a piece of a word: the unit that the model reads.",parameters:"The values that training has set. M is a million, k a thousand.","kv heads":"Heads with keys an\
d values. Where several heads share them (grouped-query attention), there are fewer kv heads than heads.","attention map":"One square per pair of tokens. Each r\
ow is a query, the token that looks; each column is a key, a token that it looks at. The darker the square (on a dark page, the brighter), the larger the weight\
.",switch:"Multiplies the output of a head by a factor: 1 changes nothing, 0 switches the head off, as if it were pruned. Heads of later layers read this output\
, so their maps may change, too.",query:"The token that looks: a row of the map. The weights of a row add up to 1.",key:"A token that a query looks at: a column\
 of the map.",shading:"The colour of each box shows the largest weight of its head from this token, on a square-root scale like the maps. The shading of the tex\
t shows the mean over all heads, relative to its largest value.",weight:"How much a token takes from a token that it looks at, from 0 to 1. All weights from one\
 token add up to 1. Colours show the square root of the weight, so small weights are visible: 0.25 has the colour halfway to 1.",kind:"What a head mostly does, \
such as looking at the previous token. A head has a kind only if its score is significantly above a threshold and above chance, measured over several documents.\
 Otherwise its name is its leading share with the value of the share.",shares:"Five shares explain why a head looks where it looks; they add up to 1. Spread: it\
 looks at many tokens equally. Rest: it looks at the first or at special tokens. Position: the distance decides. Word: the token that it looks at decides. Match\
: both tokens decide. They are parts of log n, for texts of n tokens. Spread and rest lead only where they dominate. Two shares lead where their intervals overl\
ap or they differ by less than 15 %.","example rows":"Tokens with large weights in this text, and the three keys that each looks at most. Click a token to see i\
ts row.",score:"How clearly a head is of its kind, from 0 to 1: for most kinds, the share of its weight on the tokens that define the kind. The tick is the thre\
shold, the line the 95 % interval, the open dot the score by chance.",evidence:"Why the head has its kind, or none: the score, its 95 % interval, the threshold \
and the score by chance.",importance:"How much worse the model is without this head. The value after ± is half of the 95 % interval; if the importance is below \
it, it may be zero.","most similar":"The head with the most similar output, by CKA: 0 is unrelated, 1 is the same.","most similar pairs":"Each line is a pair of\
 heads among the heads that are shown, by the chosen measure. Click a pair to see both maps side by side.",CKA:"Centered kernel alignment: how similar the outpu\
ts of two heads are, whatever their rotation. 0 is unrelated, 1 is the same.","norm-weighted":"Each weight is multiplied by the length of the vector that its ke\
y adds to the output, and rows sum to 1 again (Kobayashi et al. 2020). A large weight on a token that adds nothing disappears.","hide delimiters":"Excludes spec\
ial tokens such as [CLS] and [SEP]. The weights of the other tokens are scaled to add up to 1 again.",direction:"A row of the map shows where a token looks. A c\
olumn shows who looks at the token.",distance:"How far away the keys are that a head looks at, in tokens.",entropy:"How widely a head spreads its weight: 0 if i\
t looks at one token only, larger if it looks at many tokens.",max_weight:"The largest weight that a query gives to one key; near 1, the head looks at one token\
 at a time.",first:"The share of the weight on the first token.",special:"The share of the weight on special tokens such as [CLS], [SEP] or the end of a text.",
previous:"The share of the weight on the token one position back.",next:"The share of the weight on the token one position ahead.",self:"The share of the weight\
 on the token itself.",same_token:"The share of the weight on other copies of the same token.",induction:"The share of the weight on tokens that followed an ear\
lier copy of the same token.",output_norm:"The length of the head's output vector.",measures:"Values measured over the corpus. The “?” beside each says what it \
means.",pairs:"The tokens that the head connects most strongly: from the query to the key.","by distance":"How much weight goes to keys at each distance: back o\
n the left, ahead on the right.",group:"Heads that are, on average, more similar to each other than a threshold. One of them may replace the others.",pruning:"R\
emoving heads from the model. The matrices get smaller, so the model needs less memory and time. Quality is measured again with the heads removed.","quality los\
t":"How much worse the model is without the removed heads, as a share: the growth of its perplexity, or the change of its outputs if it has no vocabulary.","can\
 be pruned":"These heads can be removed together, and the model loses less quality than the limit (the dashed line).",method:"The rule that decides which heads \
are removed first.","heads kept":"How many heads remain in the model: all of them on the left, none on the right.","attention costs":"Parameters, arithmetic and\
 memory of the attention layers alone, for a text of the given length. They are computed from the sizes, not measured.","cost: parameters":"The weights of the a\
ttention layers.","cost: FLOPs, projections":"Multiplications and additions that compute queries, keys and values of every token, and mix the heads' outputs.","\
cost: FLOPs, attention":"Multiplications and additions that compare every query with every key and mix the values.","cost: FLOPs, visible pairs only":"The same \
for pairs that the mask allows: about half of them in a causal model.","cost: scores, if written out":"Memory for the attention maps of all heads if they were s\
tored. Fast kernels never store them.","cost: KV cache":"Memory for the keys and values of all earlier tokens while a text is generated.","cost: decoding, FLOPs\
 per token":"Multiplications and additions for one new token while a text is generated.","cost: decoding, bytes per token":"Memory read for one new token: weigh\
ts and the KV cache.","cost: FLOPs per byte, all tokens":"Arithmetic per byte of memory traffic when the model reads a whole text at once. Above about 100, arit\
hmetic limits the speed; below, memory does.","cost: FLOPs per byte, decoding":"The same for one new token while a text is generated.","cost: crossover, tokens":"\
The length of text above which comparing tokens costs more than the projections.","cost: crossover, visible pairs only":"The same, counting only pairs that the \
mask allows.","as computed":"The left side of the statement, computed on this model.","as stated":"The right side: the value that the statement predicts.",statement:"\
A claim about multi-head attention from a paper or a textbook. It can be true or false.",verdict:"Holds, fails, or holds only under a condition: both sides were\
 computed on this model."};var yt=a("div",{id:"definition",role:"note",hidden:!0}),xt=null;function Yt(){xt?.setAttribute("aria-expanded","false"),xt=null,yt.hidden=!0}function to(s,t,e){
Yt(),xt=s,s.setAttribute("aria-expanded","true"),yt.replaceChildren(a("b",{},t),a("p",{},e)),document.body.append(yt),yt.hidden=!1;let n=s.getBoundingClientRect(),
{width:o,height:i}=yt.getBoundingClientRect(),r=Math.max(8,Math.min(n.left-12,document.documentElement.clientWidth-o-8)),l=n.bottom+6+i<=window.innerHeight||n.top<
i+6;yt.style.left=`${r+window.scrollX}px`,yt.style.top=`${(l?n.bottom+6:n.top-i-6)+window.scrollY}px`,st(`${t}: ${e}`)}document.addEventListener("pointerdown",s=>{
let t=s.target;xt&&!yt.contains(t)&&!xt.contains(t)&&Yt()});window.addEventListener("hashchange",Yt);document.addEventListener("keydown",s=>{s.key!=="Escape"||!xt||
(s.stopPropagation(),xt.focus(),Yt())},{capture:!0});function w(s,t=V[s]){let e=a("button",{type:"button",class:"help","aria-label":`What is ${s}?`,"aria-expand\
ed":"false",onclick:n=>{n.preventDefault(),n.stopPropagation(),xt===e?Yt():to(e,s,t)}});return e.textContent="?",e}var U=(s,t=s.toLowerCase())=>a("h3",{},s," ",
w(t));var ct=s=>s.split(",")[0];function tt(s){let t=ct(s).split(" + ");return y.shares.filter(({name:e})=>t.includes(e))}function rt(s){let t=C(s),e=Object.hasOwn(V,s)?V[s]:s===u.importance?V.importance:"",n=t?`${I(t.meaning)}${t.unit?` Unit: ${t.unit}.`:""}`:"";return w(s,[e,n].filter(
Boolean).join(" "))}var pe=s=>w(s,Qt(s)),_e=s=>Object.hasOwn(u.kind_texts,s)?u.kind_texts[s]:"";function Qt(s){let t=Object.hasOwn(u.kinds,s)?u.kinds[s]:null,e=t?
`${I(t.meaning)} Its score must be above ${t.threshold} and above chance.`:"";return[...tt(s).map(({name:o,meaning:i})=>I(`${o}: ${i}`)),_e(s),e].filter(Boolean).
join(" ")}var je=20,As=.4,me=2*Math.PI;function Es(s,{color:t,size:e=.6,hollow:n},o,i,r){let[l,c]=y.size,h=Math.max(1.2,r/2*(l+(c-l)*e));s.beginPath(),s.arc(o+r/2,i+r/2,h,
0,me),s.lineWidth=Math.max(1,Math.min(2.5,r/12)),s.strokeStyle=s.fillStyle=t,n?s.stroke():s.fill()}function eo(s,{color:t},e,n,o){let i=Os(o);s.fillStyle=t,s.fillRect(
e+i,n+i,o-2*i,o-2*i)}function so(s,t,e,n,o){t.parts?o<je?oo(s,t,e,n,o):no(s,t,e,n,o):Es(s,{...t,size:.2},e,n,o)}function no(s,{parts:t=[],leading:e=[],size:n=1,
hollow:o},i,r,l){let{size:[c,h],hole:d,centre:p}=y.ring,m=l/2*(c+(h-c)*n),[f,b]=[i+l/2,r+l/2],g=(H,et,K)=>{s.beginPath(),s.arc(f,b,H,me*(et-.25),me*(K-.25))},$=m*
(1-d),q=.6/(me*(m-$/2)),k=0;s.lineWidth=$,t.forEach((H,et)=>{let K=k+H,J=H>3*q&&H<1?q:0;s.strokeStyle=y.shares[et].colour,g(m-$/2,k+J,K-J),H>0&&s.stroke(),k=K}),
s.lineWidth=Math.max(1.2,m/9);let E=m*p-(o?s.lineWidth/2:0);e.forEach(({colour:H},et)=>{s.strokeStyle=s.fillStyle=H;let[K,J]=[.5+et/e.length,.5+(et+1)/e.length];
g(E,K,J),o?s.stroke():s.fill()})}function oo(s,{parts:t=[],leading:e=[],hollow:n},o,i,r){let l=Os(r),c=r-2*l,h=Math.max(1,r/8),d=y.shares.map(({name:f})=>f),p=e.
reduce((f,{name:b})=>f+t[d.indexOf(b)],0),m=s.globalAlpha;s.globalAlpha=m*(As+(1-As)*Math.sqrt(Math.max(0,Math.min(1,p)))),s.lineWidth=h,e.forEach(({colour:f},b)=>{
let g=c/e.length,[$,q]=[o+l+b*g,i+l];s.strokeStyle=s.fillStyle=f,n?s.strokeRect($+h/2,q+h/2,g-h,c-h):s.fillRect($,q,g,c)}),s.globalAlpha=m}var Os=s=>s>12?1.5:.5,
Cs={dot:Es,square:eo,shares:so};var Lt=256;function vt(s){let{kinds:t,no_value:e}=y;return Object.hasOwn(t,s)?t[s]:tt(s)[0]?.colour??e}function we(s){let[t,e]=tt(s);return e?`linear-gradient(9\
0deg, ${t.colour} 50%, ${e.colour} 50%)`:vt(s)}var We=s=>y.lines[s%y.lines.length],io=s=>[1,3,5].map(t=>parseInt(s.slice(t,t+2),16));function ro(s){let t=s.map(
io),e=new Uint8Array(3*Lt);for(let n=0;n<Lt;n+=1){let o=n/(Lt-1)*(t.length-1),i=Math.min(t.length-2,Math.floor(o));for(let r=0;r<3;r+=1)e[3*n+r]=Math.round(t[i][r]+
(o-i)*(t[i+1][r]-t[i][r]))}return e}var Ls=new Map;function qs(s){let t=Ls.get(s);return t||(t=ro(y.ramps[s]),Ls.set(s,t)),t}var He=()=>document.documentElement.
dataset.theme==="dark"?"weight-dark":"weight";function ht(s,t){let e=qs(s),n=3*Math.max(0,Math.min(Lt-1,Math.round(t*(Lt-1))));return`rgb(${e[n]} ${e[n+1]} ${e[n+2]})`}var Fe=new Map,fe=null;function S(s){let t=Fe.
get(s);return t===void 0&&(t=getComputedStyle(document.documentElement).getPropertyValue(s).trim(),Fe.set(s,t)),t}function Rs(){if(!fe){let s=qs(He()),t=new Uint8Array(
4*Lt).fill(255);for(let e=0;e<Lt;e+=1)t.set(s.subarray(3*e,3*e+3),4*e);fe=new Uint32Array(t.buffer)}return fe}function Ns(){fe=null,Fe.clear()}function dt(s){if(!_("leading",s))return null;let t=y.shares.map(({name:e})=>T(e,s));return t.includes(null)?null:t}var Jt=()=>u.heads.some((s,t)=>dt(t)!==null),
ut=s=>tt(_("leading",s)),ge="two shares are about as large as each other";function ke(s){let t=ut(s);return t.length>1?y.two_lead:t[0]?.name??""}function Is(s){
let t=ut(s).map(({one:e})=>e);return t.length?`This head ${t.join("; it also ")}.`:""}var ao=62,lo=40,Ps=46,co=5;function ho(s,t){if(s==="shares"||s==="kind"){let r=u.heads.map((h,d)=>gt(d)),[,l]=_s(r),c=s==="shares"?1:.6;return h=>({shape:s==="s\
hares"?"shares":"dot",color:vt(R(h)),size:l>0?Math.sqrt(Math.max(r[h]??0,0)/l):c,hollow:nt.has(u.heads[h]),faded:!t(h),parts:dt(h)??void 0,leading:ut(h)})}let e=le(
s),{ramp:n,low:o,high:i}=De(e);return r=>{let l=e[r];return{shape:"square",color:l===null?S("--line"):ht(n,i>o?(l-o)/(i-o):.5)}}}function De(s){let[t,e]=_s(s),n=Math.
max(-t,e);return t<0&&e>0?{ramp:"signed",low:-n,high:n}:{ramp:"measure",low:t,high:e}}function _s(s){let[t,e]=[1/0,-1/0];for(let n of s)n!==null&&n<t&&(t=n),n!==
null&&n>e&&(e=n);return[t,e]}var be=class{constructor(t,e){this.by=t,this.chosen=e,this.columns=1+Math.max(...v.map(n=>n.number)),this.headAt=new Map(v.map(({site:n,
number:o},i)=>[`${n} ${o}`,i])),this.side=Ps,this.type=1,this.picked=0,this.hovered=null,this.canvas=a("canvas",{tabindex:"0",role:"application",class:"grid","a\
ria-label":"Grid of heads, layers down, heads across. Arrow keys move, Enter opens the head."}),this.note=a("p",{class:"hover","aria-hidden":"true"}),this.box=a(
"div",{class:"gridbox"},this.canvas),this.canvas.addEventListener("pointermove",n=>this.hover(this.under(n))),this.canvas.addEventListener("pointerleave",()=>this.
hover(null)),this.canvas.addEventListener("click",n=>{let o=this.under(n);o!==null&&(location.hash=L(o))}),this.canvas.addEventListener("keydown",n=>this.onKey(
n)),this.canvas.addEventListener("focus",()=>this.draw()),this.canvas.addEventListener("blur",()=>this.draw()),this.describe(null)}get gutter(){return ao*this.type}get caption(){
return lo*this.type}under(t){let[e,n]=at(t,this.canvas),{gutter:o,caption:i,side:r}=this,[l,c]=[Math.floor((n-i)/r),Math.floor((e-o)/r)];return this.headAt.get(
`${l} ${c}`)??null}hover(t){t!==this.hovered&&(this.hovered=t,this.canvas.style.cursor=t===null?"default":"pointer",this.draw(),this.describe(t))}describe(t){let e="\
Point at a head for its numbers; click to open it.";this.note.textContent=t===null?e:ye(t,this.by)}onKey(t){t.key==="Enter"&&(location.hash=L(this.picked));let e=Nt[t.
key];e&&(t.preventDefault(),t.stopPropagation(),this.picked=lt(this.picked,e),this.draw(),this.describe(this.picked),st(ye(this.picked,this.by)))}draw(){let t=u.
sites.length;this.type=bt();let{gutter:e,caption:n}=this,o=((this.box.clientWidth||600)-e)/this.columns;this.side=Math.max(co,Math.min(Ps*this.type,o>12?Math.floor(
o):o)),this.box.parentElement&&(this.box.parentElement.dataset.mark=this.side<je?"tile":"ring");let[i,r]=[this.side*this.columns,this.side*t],l=W(this.canvas,e+
i,n+r+2);this.drawAxes(l,i,r);let c=ho(this.by,this.chosen),h=document.activeElement===this.canvas?this.picked:null;v.forEach(({site:d,number:p},m)=>{let[f,b]=[
e+p*this.side,n+d*this.side],g=c(m);l.globalAlpha=g.faded?.16:1,Cs[g.shape](l,g,f,b,this.side),l.globalAlpha=1,!(m!==this.hovered&&m!==h)&&(l.strokeStyle=S("--i\
nk"),l.lineWidth=1.5,l.strokeRect(f+.75,b+.75,this.side-1.5,this.side-1.5))})}drawAxes(t,e,n){let{type:o,gutter:i,caption:r}=this;t.font=`600 ${12*o}px ${z}`,t.
fillStyle=S("--ink"),t.textBaseline="middle",t.textAlign="center",t.fillText("head",i+Math.min(e,this.box.clientWidth-i)/2,8*o),it(t,"layer",8*o,r+n/2),t.font=`${11*
o}px ${z}`,t.fillStyle=S("--dim");let l=Math.max(1,Math.ceil(18*o/this.side));for(let h=0;h<this.columns;h+=l)t.fillText(String(h),i+(h+.5)*this.side,r-11*o);t.
textAlign="right";let c=u.sites.length>40||this.side<14*o;u.sites.forEach(({label:h,layer:d},p)=>{if(p%l)return;let m=c?String(d):h.replace(/^(enc|dec)oder\./,"\
$1.");t.fillText(m,i-8*o,r+(p+.5)*this.side)})}};function ye(s,t){let e=[u.heads[s]];if(C("kind")){let r=T("kind_score",s),l=ct(R(s))===R(s);e.push(`${Y(s)}${r===
null||!l?"":` ${x(r)}`}`)}let n=dt(s);n&&e.push(y.shares.map(({name:r},l)=>`${r} ${x(n[l])}`).join(", ")),u.importance&&e.push(`importance ${O(gt(s),2)}`);let o=_(
"most_similar",s);o&&e.push(`most similar ${o} ${x(T("most_similar_cka",s))}`);let i=t==="kind"||t==="shares"||t===u.importance?null:C(t);return t&&i&&e.push(`${t}\
 ${O(T(t,s))}`),nt.has(u.heads[s])&&e.push("can be pruned"),e.join(" · ")}var Y=s=>[R(s),_("kind_detail",s)].filter(Boolean).join(" "),js=s=>_e(R(s))||Is(s);function uo({q:s,k:t,dim:e},n,o,i,r){let l=n*e,c=l+e,h=o;for(;h+3<i;h+=4){let[d,p,m,f]=[0,0,0,0];for(let b=l,g=h*e;b<c;b+=1,g+=1){let $=s[b];d+=$*t[g],p+=$*t[g+
e],m+=$*t[g+2*e],f+=$*t[g+3*e]}r[h]=d,r[h+1]=p,r[h+2]=m,r[h+3]=f}for(;h<i;h+=1){let d=0;for(let p=l,m=h*e;p<c;p+=1,m+=1)d+=s[p]*t[m];r[h]=d}}function Fs(s,t,e){
let{bias:n,softcap:o,sink:i}=s,[r,l,c]=[s.first[t],s.end[t],s.first.length-1-t];e.fill(0),uo(s,t,r,l,e);let h=i===void 0?-1/0:i;for(let p=r;p<l;p+=1)o!==void 0&&
(e[p]=o*Math.tanh(e[p]/o)),n&&(e[p]+=n[p+c]),e[p]>h&&(h=e[p]);let d=i===void 0?0:Math.exp(i-h);for(let p=r;p<l;p+=1)e[p]=Math.exp(e[p]-h),d+=e[p];for(let p=r;p<
l;p+=1)e[p]/=d;return e}var po=40,mo=()=>new Promise(s=>setTimeout(s)),ze=s=>255*Math.sqrt(s)+.5,pt=class s{constructor(t,e,n){this.name=t,this.queries=n.queries,this.keys=n.keys,this.
rows=e.sequences[n.rows],this.columns=e.sequences[n.columns],this.square=n.rows===n.columns,this.coded=null,this.qk=null,this.norms=null,this.completing=null}static async read(t,e,n,o,i){
let r=new s(t,e,n);return o.map!==void 0?r.coded=await At(o.map):r.qk=await fo(o),n.norms!==null&&(r.norms=wt(await At(n.norms)).subarray(i*n.keys,(i+1)*n.keys)),
r}static fromWeights(t,e,n){let o=e.shown.length,i={label:"",queries:o,keys:o,rows:0,columns:0,norms:null,heads:[]};return s.fromCodes(t,{sequences:[e]},i,Uint8Array.
from(n,ze))}static fromCodes(t,e,n,o){let i=new s(t,e,n);return i.coded=o,i}complete(){return this.completing??=this.computeAll(),this.completing}async computeAll(){
if(this.coded)return;let t=new Uint8Array(this.queries*this.keys),e=performance.now();for(let n=0;n<this.queries;n+=1){let o=this.row(n);for(let i=0,r=n*this.keys;i<
this.keys;i+=1)t[r+i]=ze(o[i]);performance.now()-e>po&&(await mo(),e=performance.now())}this.coded=t}get bytes(){return(this.coded?.length??0)+(this.qk?4*(this.
qk.q.length+this.qk.k.length):0)}row(t){let e=new Float32Array(this.keys);if(this.qk)return Fs(this.qk,t,e);if(this.coded)for(let n=0;n<this.keys;n+=1)e[n]=(this.
coded[t*this.keys+n]/255)**2;return e}column(t){let e=new Float32Array(this.queries),n=this.coded;if(n)for(let o=0;o<this.queries;o+=1)e[o]=(n[o*this.keys+t]/255)**
2;return e}weights(t,e){return t?this.row(e):this.column(e)}async preview(t){if(this.coded)return{coded:this.coded,queries:this.queries,keys:this.keys};let e=Math.
min(t,this.queries),n=new Uint8Array(e*this.keys);for(let o=0;o<e;o+=1){let i=this.row(Math.floor((o+.5)*this.queries/e));for(let r=0;r<this.keys;r+=1)n[o*this.
keys+r]=ze(i[r])}return{coded:n,queries:e,keys:this.keys}}reweighted(t,e){let n=t?this.norms:null,o=e&&this.columns.special.some(Boolean);if(!n&&!o)return this;
let i=new Float32Array(this.keys).fill(1);for(let l=0;l<this.keys;l+=1)n&&(i[l]=n[l]),o&&this.columns.special[l]&&(i[l]=0);let r=Object.create(this);return r.row=
l=>wo(this.row(l),i),this.coded&&(r.coded=go(this.coded,this.queries,this.keys,i)),r}};async function fo(s){let{q:t,k:e,first:n,end:o,dim:i}=s,r=await Promise.all(
[t,e,n,o].map(At)),l=s.wide?wt:bs;return{q:l(r[0]),k:l(r[1]),first:Re(r[2]),end:Re(r[3]),dim:i,bias:s.bias===void 0?null:wt(await At(s.bias)),softcap:s.softcap,
sink:s.sink}}function wo(s,t){let e=0;for(let n=0;n<s.length;n+=1)s[n]*=t[n],e+=s[n];if(e>0)for(let n=0;n<s.length;n+=1)s[n]/=e;return s}function go(s,t,e,n){let o=new Uint8Array(
s.length);for(let i=0;i<t;i+=1){let r=i*e,l=0;for(let c=0;c<e;c+=1)l+=s[r+c]**2*n[c];if(l!==0)for(let c=0;c<e;c+=1)o[r+c]=Math.round(s[r+c]*Math.sqrt(n[c]/l*255*
255))}return o}function xe(s){P("trouble").textContent=s,P("trouble").hidden=!s}async function Ws(s,t){try{return await fetch(s,{...t,cache:"no-store"})}catch(e){throw Xt(e)||
xe("The server does not answer. Is multihead serve still running?"),e}}async function Be(s,t,e){let n=Object.entries(t).map(([i,r])=>[i,String(r)]),o=await Ws(`${s}\
?${new URLSearchParams(n)}`,{signal:e});if(!o.ok){let i=await o.text();throw xe(i),new Error(i)}return xe(""),o}async function qt(s,t,e){let n=await Be(s,t,e);return new Uint8Array(
await n.arrayBuffer())}var Xt=s=>s instanceof DOMException&&s.name==="AbortError";async function Hs(s){let t={"Content-Type":"application/json"},e=await fetch("\
text",{method:"POST",body:JSON.stringify(s),headers:t});if(!e.ok)throw new Error(await e.text());return e.json()}async function Ds(s,t){let e={"Content-Type":"a\
pplication/json"},n=await Ws("switches",{method:"POST",body:JSON.stringify(s),headers:e,signal:t});if(!n.ok)throw new Error(await n.text());return xe(""),n.json()}var zs=4096,ko=256,bo=120,j=class s extends pt{constructor(t,e,n,o){super(t,e,n),this.where=o,this.lines=new Map,this.overview=null,this.latest=null,this.asking=
null,this.controller=null,this.timer=0,this.variants=new Map,this.source=[t,e,n]}complete(){return Promise.resolve()}get bytes(){return 4*this.keys*this.lines.size+
2e6}reweighted(t,e){if(!t&&!e)return this;let n=`${t} ${e}`,o=this.variants.get(n);if(!o){let i={...this.where,...t?{norm:1}:{},...e?{hide:1}:{}};o=new s(...this.
source,i),this.variants.set(n,o)}return o}weights(t,e){return this.lines.get(`${t?"row":"column"} ${e}`)??null}async fetchWeights(t,e){let n=this.weights(t,e);if(n)
return n;let o=t?"row":"column",i=wt(await qt(o,{...this.where,i:e}));return this.lines.size>=ko&&this.lines.delete(this.lines.keys().next().value??""),this.lines.
set(`${o} ${e}`,i),i}picture(t,e,n,o){let[i,r]=[Math.floor(t.x),Math.floor(t.y)],l=Math.min(this.keys,Math.ceil(t.x+t.w-1e-9))-i,c=Math.min(this.queries,Math.ceil(
t.y+t.h-1e-9))-r,h={width:Math.min(l,e,zs),height:Math.min(c,n,zs)},d={x:i,y:r,w:l,h:c,...h},p=Object.values(d).join(" ");return this.latest?.key===p?this.latest:
this.overview?.key===p?this.overview:(this.asking!==p&&(this.cancel(),this.asking=p,this.timer=window.setTimeout(()=>this.fetchPicture(d,p,o),this.overview?bo:0)),
this.overview)}async fetchPicture(t,e,n){this.controller=new AbortController;try{let o=await qt("map",{...this.where,...t},this.controller.signal);this.latest={
key:e,part:t,coded:o,keys:t.width,queries:t.height},t.w===this.keys&&t.h===this.queries&&(this.overview=this.latest),this.asking=null,n()}catch(o){this.asking===
e&&(this.asking=null),Xt(o)||st(String(o))}}cancel(){clearTimeout(this.timer),this.controller?.abort(),this.asking=null}async preview(t){let[e,n]=[Math.min(t,this.
keys),Math.min(t,this.queries)],o={x:0,y:0,w:this.keys,h:this.queries,width:e,height:n,thin:1};return{coded:await qt("map",{...this.where,...o}),keys:e,queries:n}}};
function Bs({part:s,keys:t,queries:e},n){let[o,i]=[t/s.w,e/s.h];return{x:(n.x-s.x)*o,y:(n.y-s.y)*i,w:n.w*o,h:n.h*i}}var yo=96e6,xo=2048,jt=new Map,Ue=new Map;async function Rt(s,t){let e=`${s} ${t}`,n=jt.get(e);if(n)return Ve(e,n),n;let o=v[t],i=o&&u.texts[s]?.layers[o.site],
r=i?.heads[o.head];if(!i||!r)return null;let l=Ue.get(e);l||(l=r.served?vo(s,t):pt.read(u.heads[t],u.texts[s],i,r,o.head),Ue.set(e,l));try{let c=await l;return Ve(
e,c),c}finally{Ue.delete(e)}}async function mt(s,t){let e=await Rt(s,t);return e&&!e.coded&&(await e.complete(),Ve(`${s} ${t}`,e)),e}function Ve(s,t){jt.delete(
s),jt.set(s,t);let e=0;for(let n of jt.values())e+=n.bytes;for(let[n,o]of jt){if(e<=yo||n===s)break;jt.delete(n),e-=o.bytes}}async function vo(s,t){let e=u.texts[s],
n=v[t],o=e.layers[n.site],i={text:s,layer:o.label,head:n.head},{queries:r,keys:l}=o;if(Math.max(r,l)>xo)return new j(u.heads[t],e,o,i);let c=new pt(u.heads[t],e,
o),h={x:0,y:0,w:l,h:r,width:l,height:r},[d,p]=await Promise.all([qt("map",{...i,...h}),qt("norms",i)]);return c.coded=d,c.norms=wt(p),c}async function $t(s,t,e){
return s instanceof j?s.fetchWeights(t,e):t?s.row(e):(await s.complete(),s.column(e))}function Us(s,t,e,n){let o=new Int32Array(n+1);for(let i=0;i<=n;i+=1)o[i]=Math.min(e,Math.floor(s+i/n*t+1e-9));return o}function Zt({coded:s,keys:t,queries:e},n,o,i){
let r=Rs(),l=new ImageData(o,i),c=new Uint32Array(l.data.buffer),h=Us(n.x,n.w,t,o),d=Us(n.y,n.h,e,i),p=new Uint8Array(o),m=-1;for(let f=0;f<i;f+=1){let[b,g]=[d[f],
Math.max(d[f]+1,d[f+1])],$=b===m&&g===b+1,q=f*o;if($){c.copyWithin(q,q-o,q);continue}p.fill(0);for(let k=b;k<g&&k<e;k+=1)for(let E=0,H=k*t;E<o;E+=1){let et=Math.
min(t,Math.max(h[E]+1,h[E+1])),K=p[E];for(let J=h[E];J<et;J+=1)s[H+J]>K&&(K=s[H+J]);p[E]=K}m=g===b+1?b:-1;for(let k=0;k<o;k+=1)c[q+k]=r[p[k]]}return l}async function Vs(s,t){
let e=a("canvas",{class:"thumb","aria-hidden":"true"});W(e,t,t);let n=Math.round(t*Pt()),o=await s.preview(n),i={x:0,y:0,w:o.keys,h:o.queries};return Ct(e).putImageData(
Zt(o,i,n,n),0,0),e}var Ke=s=>s.reduce((t,e)=>e>t?e:t,0),$o=56;function Ks(s,t,{left:e,width:n,window:o,type:i}){let r=$o*i,l=W(s,e+n,r),c=Math.max(1e-9,Ke(t)),h=n/
o.w;l.fillStyle=S("--dim"),l.font=`${11*i}px ${z}`,l.textAlign="right",l.textBaseline="top",l.fillText(x(c),e-6,2),l.textBaseline="bottom",l.fillText("0",e-6,r-
2),l.fillStyle=S("--line"),l.fillRect(e,r-1,n,1),l.fillStyle=S("--accent");let d=Math.min(t.length,o.x+o.w);for(let p=Math.floor(o.x);p<d;p+=1){let m=t[p]/c*(r-
8),f=e+(p-o.x)*h;f+h<=e||m<=.2||l.fillRect(Math.max(e,f),r-1-m,Math.max(1,h-(h>4?1:0)),m)}}var So=5,To=.04,Ft=2e3,ft=class{constructor(t,{hover:e,pick:n,label:o}){this.sequence=t,this.from=0,this.spans=[],this.shades=new Int8Array(0),this.marked=null,
this.painted=[null,null],this.arcs=F("svg",{class:"arcs","aria-hidden":"true"}),this.text=a("p",{class:"tokens","aria-label":o}),this.part=t.shown.length>Ft?a("\
p",{class:"part"}):null,this.box=a("div",{class:"reading"},this.arcs,this.part,this.text),this.fill(0);let i=(r,l)=>this.text.addEventListener(r,c=>{let h=Gs(c);
h!==null&&l(h)});i("pointerover",e),i("focusin",e),i("click",n),this.text.addEventListener("pointerleave",()=>e(null)),this.text.addEventListener("keydown",r=>this.
onKey(r,n))}fill(t){let{shown:e,special:n,joined_to_previous:o}=this.sequence,i=Math.min(Ft,e.length-t);if(this.from=t,this.spans=Array.from({length:i},(c,h)=>{
let d=e[t+h],p=d.length>40?A(d,400):null,f={class:n[t+h]?"token special":"token","data-i":t+h,role:"button",tabindex:h?"-1":"0",title:p};return a("span",f,A(d,40))}),
this.shades=new Int8Array(i),this.marked=null,this.text.replaceChildren(...this.spans.flatMap((c,h)=>[o[t+h]&&h?"":" ",c])),!this.part)return;let r=(c,h)=>{let d=c<
0||c>=e.length;return a("button",{type:"button",disabled:d,onclick:()=>this.showFrom(c)},h)},l=`tokens ${t} to ${t+i-1} of ${e.length}`;this.part.replaceChildren(
r(t-Ft,"earlier"),l,r(t+Ft,"later"))}showFrom(t){this.fill(t),this.draw()}onKey(t,e){let n=Gs(t);if(n===null)return;let o={ArrowLeft:-1,ArrowRight:1,Enter:0," ":0}[t.
key];if(o===void 0)return;if(t.preventDefault(),t.stopPropagation(),o===0){e(n);return}let i=this.spans[n-this.from+o];i&&(this.spans[n-this.from].tabIndex=-1,i.
tabIndex=0,i.focus())}paint(t,e){this.painted=[t,e],this.part&&e!==null&&!this.spanOf(e)&&this.fill(Math.floor(e/Ft)*Ft),this.draw()}spanOf(t){return this.spans[t-
this.from]}draw(){let[t,e]=this.painted,n=t?Math.max(1e-9,Ke(t)):1;this.spans.forEach((o,i)=>{let r=t?t[this.from+i]:0,l=r>.001||r>0&&this.part?Math.sqrt(r/n):0,
c=l>.02?Math.round(72*l):0;c!==this.shades[i]&&(this.shades[i]=c,o.style.backgroundColor=c?`color-mix(in srgb, var(--shade) ${c}%, transparent)`:"",o.style.color=
c>0?"var(--ink)":"")}),this.marked?.classList.remove("from"),this.marked=e===null?null:this.spanOf(e)??null,this.marked?.classList.add("from"),this.arcs.replaceChildren(),
t&&e!==null&&this.marked&&this.drawArcs(t,e,this.marked)}drawArcs(t,e,n){let o=this.box.getBoundingClientRect(),i=l=>{let c=l.getBoundingClientRect();return[c.left+
c.width/2-o.left,c.top-o.top]},r=i(n);for(let l of te(t,So,To,c=>c!==e&&this.spanOf(c)!==void 0)){let c=i(this.spanOf(l)),h=Math.min(r[1],c[1])-Math.min(34,8+Math.
abs(c[0]-r[0])/9),d=F("path",{d:`M${r} C${r[0]},${h} ${c[0]},${h} ${c}`,fill:"none","stroke-width":(.8+3*Math.sqrt(t[l])).toFixed(2),"stroke-opacity":(.35+.6*t[l]).
toFixed(2)});this.arcs.append(d)}}};function Gs(s){let t=re(s,".token");return t?Number(t.dataset.i):null}function te(s,t,e,n=()=>!0){let o=[];for(let i=0;i<s.length;i+=
1)s[i]>=e&&n(i)&&o.push(i);return o.sort((i,r)=>s[r]-s[i]).slice(0,t)}var Mo=3,Ao=3,Ge=24,Eo=.02,ve=class{constructor(){this.list=a("ol");let t=U("Three rows of this text","example rows");this.element=a("section",{class:"pairs row\
s"},t,this.list)}async show(t){let e;if(t instanceof j){let l=await Be("pairs",t.where).catch(()=>null);if(!l)return;e=await l.json()}else e=Co(t);let n=new Set,
o=l=>n.size<n.add(t.rows.shown[l]).size,i=e.map(([,l])=>l).filter(o).slice(0,Mo),r=await Promise.all(i.map(l=>$t(t,!0,l))).catch(()=>null);r&&this.list.replaceChildren(
...i.map((l,c)=>Oo(t,l,r[c])))}};function Oo(s,t,e){let n=l=>a("span",{class:"word"},A(l,14)),o=te(e,Ao,Eo).map(l=>a("span",{},n(s.columns.shown[l])," ",a("smal\
l",{},x(e[l])))),i=D({row:String(t),dir:void 0}),r=a("a",{href:i,title:`token ${t}`},n(s.rows.shown[t]));return a("li",{},r," → ",a("span",{class:"keys"},o))}
function Co({coded:s,keys:t,queries:e,square:n,rows:o,columns:i}){let r=[],l=-1;for(let c=0;s&&c<e;c+=1)if(!o.special[c])for(let h=0,d=c*t;h<t;h+=1)s[d+h]<=l||i.
special[h]||n&&c===h||(r.push([s[d+h],c,h]),r.sort((p,m)=>m[0]-p[0]),r.length>Ge&&r.pop(),r.length===Ge&&(l=r[Ge-1][0]));return r.map(([c,h,d])=>[(c/255)**2,h,d])}var Ys=new Map;async function $e(s){let t=Ys.get(s.name);t||(t=At(s.line),Ys.set(s.name,t));let e=await t,n=u.pairs?.heads.length??0;return(o,i)=>{let r=e[o*n+i];
return r===255?NaN:s.low+r/254*(1-s.low)}}var Qs={cka:"CKA",attention:"attention distance",write:"write overlap",read:"read overlap"},St=({name:s})=>Object.hasOwn(
Qs,s)?Qs[s]:s,Js={correlation:"Do two heads have the same output?",cka:"Do two heads have the same output, apart from a rotation?",attention:"Do two heads look \
at the same tokens?",write:"Do the output matrices of two heads write into the same directions?",read:"Do the input matrices of two heads read the same directio\
ns?"},Ye=({name:s})=>Object.hasOwn(Js,s)?Js[s]:s,Se=s=>`${Ye(s)} ${I(s.meaning)}`,ee=s=>s.name==="attention";function Xs(s,t,e,n){let o=ee(s)?1:-1,i=[];return e.
forEach((r,l)=>{for(let c of e.slice(l+1)){let h=t(r,c);Number.isNaN(h)||i.push(r<c?[r,c,h]:[c,r,h])}}),i.sort((r,l)=>o*(r[2]-l[2])||r[0]-l[0]||r[1]-l[1]).slice(
0,n)}var Zs={stack:void 0,layer:void 0,head:void 0,row:void 0,second:void 0},Lo=4,se=class{constructor(t,e=!1){this.rows=new ve;let n=`Numbers of ${u.heads[t]}`,o=u.
texts.length?this.rows.element:null,i=[qo(t),Ro(t),o,_o(t),Fo(t),Do(t),Wo(t),Uo(t,e)];this.element=a("aside",{class:"panel","aria-label":n},i)}};function qo(s){
let t=dt(s);if(!t)return null;let e=ut(s),n=y.shares.map((i,r)=>{let[l,c]=[T(`${i.name}_low`,s),T(`${i.name}_high`,s)],h=w(i.name,I(i.meaning)),d=a(e.includes(i)?
"b":"span",{},i.name," ",h);return en(d,{label:i.name,value:t[r],color:i.colour,low:l,high:c})}),o=a("p",{class:"dim"},"The five add up to 1; the lines are 95 %\
 intervals.");return a("section",{class:"shares"},U("What decides where it looks","shares"),n,o)}function Ro(s){if(!C("kind"))return null;let t=R(s),e=u.why?.[u.
heads[s]],n=Object.keys(u.kinds).map(h=>({name:h,score:T(`kind:${h}`,s)})).sort((h,d)=>(d.score??0)-(h.score??0)),i=[...[t,...["second","third"].map(h=>tn(_(h,s)))].
flatMap(h=>n.filter(d=>d.name===h)),...n],r=[...new Set(i)].slice(0,Lo).map(({name:h,score:d})=>d===null?null:Po(s,h,d,h===t)),l=e?`${V.evidence} Here: ${e}.`:V.
evidence,c=a("p",{class:"dim"},"Bars are scores, ticks are thresholds. ",w("score"));return a("section",{},U("Kind"),a("p",{},a("b",{},Y(s))),a("p",{class:"dim"},
`${No(s)} `,w("evidence",l)),a("div",{class:"scores"},r,c),Io(s))}var tn=s=>s.split(" ")[0];function No(s){let t=R(s);if(Object.hasOwn(u.kinds,t)){let[h,d]=["ki\
nd_score","kind_control"].map(m=>x(T(m,s))),{threshold:p}=u.kinds[t];return`Its score is ${h}: clearly above the threshold (${p}) and above chance (${d}).`}let e=_(
"second",s);if(!e)return"No kind could be measured.";let{threshold:n,shares:o}=u.kinds[tn(e)],i=T("second_score",s)??0,r=ut(s).map(({name:h})=>h),l=!r.length||r.
some(h=>o.includes(h)),c=i>n&&!l?`A head is named after this kind only if ${o.join(" or ")} leads.`:`The 95 % interval of this kind must be above ${n} and abov\
e chance.`;return`The closest kind is “${e}”, with a score of ${x(i)}. ${c}`}function Io(s){let t={position:"positions, not words",content:"words, not posit\
ions",both:"positions and words"},e=_("driven",s);if(!Object.hasOwn(t,e))return null;let n=T("driven_score",s),o=`The tokens of a text are shuffled, and both ma\
ps compared: the overlap at the same positions, minus the overlap at the same words: ${n!==null&&n>0?"+":""}${x(n)}.`;return a("p",{class:"dim"},`Follows ${t[e]}\
 `,w("follows",o))}function Po(s,t,e,n){let{threshold:o}=u.kinds[t],[i,r,l]=["kind_control","kind_low","kind_high"].map(d=>n?T(d,s):null),c=`${t} ${x(e)}, thres\
hold ${o}`,h=a("span",{},t," ",pe(t));return en(h,{label:c,value:e,color:vt(t),threshold:o,chance:i,low:r,high:l})}function en(s,{label:t,value:e,color:n,threshold:o,
chance:i=null,low:r,high:l}){let c=d=>`${(100*Math.max(0,Math.min(1,d))).toFixed(1)}%`,h=F("svg",{class:"score",role:"img","aria-label":t});return h.append(F("r\
ect",{x:0,y:5,width:"100%",height:6,class:"track",rx:3}),F("rect",{x:0,y:5,width:c(e),height:6,rx:3,fill:n})),o!==void 0&&h.append(F("rect",{x:c(o),y:1,width:1.5,
height:14,class:"tick"})),r!==null&&l!==null&&h.append(F("line",{x1:c(r),x2:c(l),y1:8,y2:8,class:"ends"})),i!==null&&h.append(F("circle",{cx:c(i),cy:8,r:3,class:"\
chance"})),a("div",{class:"scoreline"},s,h,a("span",{class:"value"},x(e)))}function _o(s){if(!u.importance)return null;let t=T("rank",s),e=ce(s),n=e===null?"":`\
 ± ${O(e,1)}`,o=t===null?"":`, rank ${t} of ${u.heads.length}`,i=`${I(C(u.importance)?.meaning??"")} ${I(u.corpus.loss??"")}`.trim();return a("section",{},U("I\
mportance"),a("p",{},a("b",{},O(gt(s),2)),`${n}${o}.`),jo(s),a("p",{class:"dim"},`${V.importance.split(".")[0]}. `,w("how importance is measured",i)))}function jo(s){
if(!u.curve||!nt.has(u.heads[s]))return null;let e=`Can be pruned${nt.size>1?`, together with ${nt.size-1} others,`:""} for less than ${ot(u.curve.limit)} of qu\
ality. `;return a("p",{},e,a("a",{href:D({...Zs,view:"pruning"})},"Show pruning →"))}function Fo(s){let t=_("most_similar",s),e=N.get(t);if(e===void 0)return null;
let n=`, CKA similarity ${x(T("most_similar_cka",s))} `,o=D({...Zs,view:"similarity",pick:u.heads[s]});return a("section",{},U("Most similar","most similar"),a(
"p",{},a("a",{href:L(e)},t),n,w("CKA")),a("p",{},a("a",{href:D({second:t})},"Show side by side →")),a("p",{},a("a",{href:o},"Show all pairs →")))}function Wo(s){
let t=u.often?.[u.heads[s]];if(!t?.length)return null;let e="For every token, the other token with the largest weight, special tokens excluded: mean weight × nu\
mber of times. The pairs with the most weight in total come first.",n=t.map(([i,r,l,c])=>Ho(i,r,`${x(c)} × ${l}`)),o=a("h3",{},"Strongest pairs over the corpus\
 ",w("pairs",e));return a("section",{class:"pairs often"},o,a("ol",{},n))}function Ho(s,t,e){let n=o=>a("span",{class:"word"},A(o,14));return a("li",{},n(s)," →\
 ",n(t),a("span",{class:"value"},e))}function Do(s){let t=[];for(let h=-64;h<=64;h+=1){let d=T(`offset${h<0?h:`+${h}`}`,s);d!==null&&t.push([h,d])}if(t.length<3)
return null;let e=Math.max(...t.map(([,h])=>h),1e-9),n=100/t.length,i=F("svg",{class:"offsets",role:"img","aria-label":"mean weight by distance",...{viewBox:"0 \
0 100 40",preserveAspectRatio:"none"}});t.forEach(([h,d],p)=>{let m=d/e*38,[f,b]=[(p*n+n*.12).toFixed(2),(40-m).toFixed(2)],g={width:(n*.76).toFixed(2),height:m.
toFixed(2)},$=F("rect",{x:f,y:b,...g,class:h===0?"zero":""});$.append(F("title",{},`${h>0?"+":""}${h}: ${x(d)}`)),i.append($)});let[r,l]=[t[0][0],t[t.length-1][0]],
c=[`${-r} back`,"itself",`${l} ahead`].map(h=>a("span",{},h));return a("section",{},U("Where it looks, by distance","by distance"),i,a("p",{class:"ends dim"},c),
a("p",{class:"dim"},`Highest bar: ${x(e)} of the weight, mean over the corpus.`))}var zo=["kind","most_similar","second","third","order$","cluster$","driven","l\
eading$"],Bo=new RegExp(`^(offset[+-]|(spread|rest|position|word|match)_|${zo.join("|")})`);function Uo(s,t){let e=Object.keys(u.table??{}).filter(c=>!Bo.test(c));
if(!e.length)return null;let n=a("tbody"),o=()=>{if(!(!l.open||n.firstChild))for(let c of e){let h=Et(c,s),d=typeof h=="string"?h:O(h),p=h===null?$s(c,s):"",m=a(
"td",{},d,p?w(`missing: ${c}`,I(p)):null),f=a("th",{scope:"row"},c," ",rt(c));n.append(a("tr",{},f,m,a("td",{class:"dim"},C(c)?.unit)))}},i=a("table",{class:"me\
asures"},n),r=a("summary",{},`All ${e.length} measures`),l=a("details",{open:t,ontoggle:o},r,i);return l}var Vo=["kind_score","entropy","max_weight","distance",
"first","special","previous","output_norm"];function sn(s,t){let e=c=>[s,t].some(h=>T(c,h)!==null),n=[u.importance??"",...Vo].filter(e).map(c=>{let h=a("th",{scope:"\
row"},c===u.importance?"importance":c," ",rt(c));return a("tr",{},h,[s,t].map(d=>a("td",{},O(T(c,d)))))}),o=C("kind")?a("tr",{},a("th",{scope:"row"},"kind ",w("\
kind")),[s,t].map(c=>a("td",{},Ss(c)))):null,i=[s,t].map(c=>a("th",{scope:"col"},u.heads[c])),r=a("thead",{},a("tr",{},a("td"),i)),l=a("table",{class:"measures"},
r,a("tbody",{},o,n));return a("div",{class:"pair"},U("Both heads in numbers","measures"),l)}function nn(s,t){let e=a("span",{class:"alikeness"}),{pairs:n}=u;if(!n)
return e;let[o,i]=[s,t].map(r=>n.heads.indexOf(u.heads[r]));return Promise.all(n.measures.map($e)).then(r=>{e.append("Similarity: "),r.forEach((l,c)=>{let h=n.measures[c],
d=`${c?", ":""}${St(h)} ${x(l(o,i))} `;e.append(d,w(St(h),Se(h)))})}),e}var Ko=150;function Go(s){let t=[{key:"head",title:"Head",help:w("head"),value:e=>e,show:e=>u.heads[e]}];if(C("kind")){let e=i=>Y(i)||null;t.push({key:"kind",title:"\
Kind",help:w("kind"),value:e,show:Qe,words:!0});let n=i=>T("kind_score",i),o=i=>x(n(i));Jt()||t.push({key:"score",title:"Score",help:w("score"),value:n,show:o})}
if(Jt()){let[e,n]=["shares","Shares"];t.push({key:e,title:n,help:w("shares"),value:Yo,show:Qo,words:!0})}if(u.importance){let e=rt(u.importance);t.push({key:"im\
portance",title:"Importance",help:e,value:gt,show:Jo})}if(C("most_similar")){let e=i=>T("most_similar_cka",i),[n,o]=["most_similar","Most similar"];t.push({key:n,
title:o,help:w("most similar"),value:e,show:Xo,words:!0})}if(s!=="kind"&&s!=="shares"&&s!==u.importance&&C(s)){let e=o=>Et(s,o),n=o=>{let i=e(o);return typeof i==
"string"?i:O(i)};t.push({key:s,title:s,help:rt(s),value:e,show:n})}return t}function Qe(s){let t=a("i",{class:"dot","aria-hidden":"true"});return t.style.background=
R(s)?we(R(s)):"transparent",[t,Y(s)||O(null)]}function Yo(s){let t=dt(s),e=y.shares.indexOf(ut(s)[0]);return t&&e>=0?2*e-t[e]:null}function Qo(s){let t=dt(s);if(!t)
return O(null);let e=y.shares.map(({name:i},r)=>`${i} ${x(t[r])}`).join(", "),n=F("svg",{class:"sharebar",role:"img","aria-label":e,viewBox:"0 0 1 1"});n.setAttribute(
"preserveAspectRatio","none");let o=0;return t.forEach((i,r)=>{n.append(F("rect",{x:o,y:0,width:Math.max(0,i),height:1,fill:y.shares[r].colour})),o+=i}),n}function Jo(s){
let t=ce(s),e=t===null?null:a("small",{},` ± ${O(t,1)}`);return[O(gt(s),2),e]}function Xo(s){let t=_("most_similar",s);return t?[`${t} `,a("small",{},x(T("most\
_similar_cka",s)))]:O(null)}function Zo(s,t,e){return[...s].sort((n,o)=>{let[i,r]=[t.value(n),t.value(o)];if(i===null||r===null)return+(i===null)-+(r===null)||n-
o;let l=i<r?-1:i>r?1:0;return(e?-l:l)||n-o})}function on(s,t,e){let n=Go(e),o=k=>n.find(E=>E.key===k),i=o(s.sort)??o("importance")??n[0],r=["head","kind","share\
s"].includes(i.key),l=(s.down??(r?"0":"1"))==="1",c=Zo(t,i,l),h=n.map(k=>{let E=k===i,H=()=>M({sort:k.key,down:E?l?"0":"1":void 0}),et=E?l?" ↓":" ↑":"",K=E?
l?"descending":"ascending":"none",J=a("button",{type:"button",onclick:H},k.title+et);return a("th",{scope:"col",class:k.words?"words":"","aria-sort":K},J,k.help)}),
d=a("tbody"),p=a("button",{type:"button",class:"more"}),m=()=>{let k=d.rows.length;d.append(...c.slice(k,k+Ko).map(E=>ti(E,n))),p.hidden=d.rows.length>=c.length,
p.textContent=`Show more of ${c.length} heads`};p.addEventListener("click",m),m();let f=a("caption",{class:"quiet"},"All heads"),b=a("table",{class:"heads"},f,a(
"thead",{},a("tr",{},h)),d),g={class:"scroll",tabindex:"0",role:"region","aria-label":"Table of heads"},$=a("button",{type:"button",onclick:ni},"Download CSV"),
q=a("small",{class:"dim"},` ${B(c.length,"head")} in this table`);return a("div",{class:"table"},a("div",g,b,p),a("p",{class:"tail"},$,q))}function ti(s,t){let e=t.
map(({show:n,words:o},i)=>i===0?a("th",{scope:"row"},a("a",{href:L(s)},n(s))):a("td",{class:o?"words":""},n(s)));return a("tr",{"data-head":u.heads[s]},e)}var ei=/^[=+\-@\t\r]/;
function si(s){return s===null?"":typeof s=="number"?String(s):`"${(ei.test(s)?`'${s}`:s).replaceAll('"','""')}"`}function ni(){let s=Object.keys(u.table??{}),t=u.
heads.map((n,o)=>{let{site:i,number:r}=v[o];return[n,u.sites[i].layer,r,...s.map(l=>Et(l,o))]}),e=[["head","layer","number",...s],...t].map(n=>`${n.map(si).join(
",")}\r
`);ie(new Blob(e,{type:"text/csv"}),"heads.csv")}function Je(s,t){let e=(i,r,l)=>{let c=lt(s,i),h=`${l}: ${u.heads[c]}`;return a("a",{href:L(c),class:"step",title:h,"aria-label":h},r)},n=a("span",{class:"steps"});
n.append(e([0,-1],"←","previous head"),e([0,1],"→","next head"),e([-1,0],"↑","previous layer"),e([1,0],"↓","next layer"));let o=t===null?js(s):nn(s,t);return a(
"div",{class:"headtop"},a("h2",{},u.heads[s]),t===null?null:a("span",{class:"beside"},`and ${u.heads[t]}`),C("kind")&&t===null?a("span",{class:"chip"},Qe(s)):null,
n,a("a",{href:D(ue),class:"back"},"← All heads"),a("p",{class:"does"},o))}var oi=84,Te=class{constructor(t,e){this.text=e,this.site=-1,this.slots=[],this.element=a("section",{class:"strip"}),this.show(t)}show(t){v[t].site!==this.site&&
this.fill(v[t].site);for(let{head:e,slot:n}of this.slots)n.href=L(e),n.className=e===t?"slot on":"slot"}fill(t){this.site=t;let{label:e,heads:n}=u.sites[t];this.
slots=Array.from({length:n},(i,r)=>{let l=G[t]+r,c=a("span",{class:"hole"}),h=u.heads[l],d=a("a",{"aria-label":`${h} ${Y(l)}`},c,a("span",{class:"name"},h));return{
head:l,slot:d,picture:c}}),this.element.setAttribute("aria-label",`Heads of ${e}`);let o=a("div",{class:"slots"},this.slots.map(({slot:i})=>i));this.element.replaceChildren(
a("h3",{},`All heads of ${e}`),o),this.drawAll()}async drawAll(){let{slots:t}=this;if(u.texts.length){await ne();for(let{head:e,slot:n,picture:o}of t){if(await oe(),
t!==this.slots||n!==t[0].slot&&!n.isConnected)return;let i=await Rt(this.text,e).catch(()=>null);i&&o.replaceChildren(await Vs(i,oi).catch(()=>""))}}}};var ii=104,ri=22,rn=11,ai=720,an=4,Wt=class{constructor({point:t,pick:e,drawn:n},o="token"){this.unit=o,this.point=t,this.pick=e,this.drawn=n,this.map=null,this.
window={x:0,y:0,w:1,h:1},this.mark={row:null,column:null},this.width=0,this.height=0,this.room=0,this.type=1,this.dragged=!1,this.painted=null,this.pointers=new Map,
this.canvas=a("canvas",{class:"map",role:"img",tabindex:"-1"}),this.box=a("div",{class:"mapbox"},this.canvas),this.canvas.addEventListener("wheel",i=>this.onWheel(
i),{passive:!1}),this.canvas.addEventListener("pointerdown",i=>this.onDown(i)),this.canvas.addEventListener("pointermove",i=>this.onMove(i)),this.canvas.addEventListener(
"pointerup",i=>this.onUp(i)),this.canvas.addEventListener("pointercancel",i=>this.pointers.delete(i.pointerId)),this.canvas.addEventListener("pointerleave",()=>this.
point(null)),this.canvas.addEventListener("dblclick",()=>this.showAll())}get labels(){return Math.round(ii*this.type)}get place(){return{left:this.labels,width:this.
width,window:this.window,type:this.type}}show(t){let e=this.map&&this.map.queries===t.queries&&this.map.keys===t.keys;this.map=t,e||(this.window={x:0,y:0,w:t.keys,
h:t.queries});let n=`${t.queries} queries down, ${t.keys} keys across`,o=`Attention map of ${t.name}: ${n}. The text below has the same weights.`;this.canvas.setAttribute(
"aria-label",o)}clear(){W(this.canvas,this.canvas.clientWidth,this.canvas.clientHeight)}showAll(){this.map&&(this.window={x:0,y:0,w:this.map.keys,h:this.map.queries},
this.draw())}zoom(t,e=this.width/2,n=this.height/2){let{map:o,window:i}=this;if(!o)return;let[r,l]=[i.x+e/this.width*i.w,i.y+n/this.height*i.h],c=Math.max(Math.
min(an,o.keys),Math.min(o.keys,i.w/t)),h=Math.max(Math.min(an,o.queries),Math.min(o.queries,i.h/t));this.window={w:c,h,x:r-e/this.width*c,y:l-n/this.height*h},this.
draw()}clampWindow(){let{map:t,window:e}=this;t&&(e.x=Math.max(0,Math.min(t.keys-e.w,e.x)),e.y=Math.max(0,Math.min(t.queries-e.h,e.y)))}onWheel(t){if(t.deltaY>0&&
this.window.w>=(this.map?.keys??0)&&!t.ctrlKey&&!t.metaKey)return;t.preventDefault();let[n,o]=at(t,this.canvas);this.zoom(Math.exp(-t.deltaY/300),n-this.labels,
o-this.labels)}onDown(t){this.canvas.setPointerCapture(t.pointerId),this.pointers.set(t.pointerId,at(t,this.canvas)),this.dragged=!1}onMove(t){let e=at(t,this.canvas),
n=this.pointers.get(t.pointerId);if(!n){this.point(this.cellAt(e));return}let o=[...this.pointers].find(([i])=>i!==t.pointerId)?.[1];if(o){let i=c=>Math.hypot(c[0]-
o[0],c[1]-o[1]),[r,l]=[(e[0]+o[0])/2-this.labels,(e[1]+o[1])/2-this.labels];this.dragged=!0,this.zoom(i(e)/Math.max(1,i(n)),r,l)}else if(this.dragged||Math.hypot(
e[0]-n[0],e[1]-n[1])>4)this.dragged=!0,this.window.x-=(e[0]-n[0])/this.width*this.window.w,this.window.y-=(e[1]-n[1])/this.height*this.window.h,this.draw();else
return;this.pointers.set(t.pointerId,e)}onUp(t){if(this.pointers.delete(t.pointerId),this.dragged)return;let e=this.cellAt(at(t,this.canvas));e&&this.pick(e)}cellAt([
t,e]){let{map:n,window:o}=this;if(!n||t<this.labels||e<this.labels)return null;let i=Math.floor(o.x+(t-this.labels)/this.width*o.w),r=Math.floor(o.y+(e-this.labels)/
this.height*o.h);return r>=0&&i>=0&&r<n.queries&&i<n.keys?[r,i]:null}observeRoom(){let t=()=>{let e=this.box.clientWidth;return e===this.room?!1:(this.room=e,this.
type=bt(),!0)};t(),new ResizeObserver(()=>t()&&this.draw()).observe(this.box)}draw(){let{map:t}=this;if(!t)return;this.clampWindow(),this.room||this.observeRoom(),
this.width=Math.max(80,Math.min(this.room||560,this.type*ai)-this.labels),this.height=Math.max(80,Math.min(1.6*this.width,this.width*t.queries/t.keys));let e=W(
this.canvas,this.width+this.labels,this.height+this.labels),n=Math.round(this.labels*Pt()),o=this.paint(t);this.canvas.toggleAttribute("data-waiting",t instanceof
j&&t.asking!==null),o&&e.putImageData(o,n,n),this.drawFrame(e,t),this.drawMarks(e),this.drawn()}paint(t){let e=Pt(),[n,o]=[Math.round(this.width*e),Math.round(this.
height*e)],i=()=>this.box.isConnected&&this.draw(),r=t instanceof j?t.picture(this.window,n,o,i):null,l=t.coded??r?.coded;if(!l)return null;let c=[...Object.values(
this.window),n,o].join(" ");if(this.painted?.key!==c||this.painted.from!==l){let h=r??{coded:l,keys:t.keys,queries:t.queries},d=r?Bs(r,this.window):this.window;
this.painted={key:c,from:l,image:Zt(h,d,n,o)}}return this.painted.image}drawFrame(t,e){let{window:n,width:o,height:i,labels:r,type:l,unit:c}=this,[h,d]=[o/n.w,i/
n.h];t.strokeStyle=S("--line"),t.strokeRect(r-.5,r-.5,o+1,i+1),t.font=`600 ${12*l}px ${z}`,t.fillStyle=S("--ink"),t.textBaseline="middle",t.textAlign="center",t.
fillText(o<180*l?"key":`key: the ${c} looked at`,r+o/2,8*l);let p=i<180*l?"query":`query: the ${c} that looks`;it(t,p,8*l,r+i/2),t.textAlign="right";let m=(g,$,q)=>(t.
fillStyle=S(q?"--ink":$?"--faint":"--dim"),t.font=`${q?"600 ":""}${11*l}px ${z}`,li(t,g,r-(ri+8)*l)),f=Math.max(1,Math.ceil(l*rn/d));for(let g=Math.ceil(n.y/f-1e-9)*
f;g<Math.min(e.queries,n.y+n.h);g+=f){let $=r+(g+.5-n.y)*d;$<r+2||$>r+i-2||t.fillText(m(e.rows.shown[g],e.rows.special[g],g===this.mark.row),r-6,$)}t.textAlign=
"left";let b=Math.max(1,Math.ceil(l*rn/h));for(let g=Math.ceil(n.x/b-1e-9)*b;g<Math.min(e.keys,n.x+n.w);g+=b){let $=r+(g+.5-n.x)*h;if($<r+2||$>r+o-2)continue;let q=m(
e.columns.shown[g],e.columns.special[g],g===this.mark.column);it(t,q,$,r-6)}}drawMarks(t){let{window:e,width:n,height:o,labels:i}=this,{row:r,column:l}=this.mark,
[c,h]=[n/e.w,o/e.h];t.save(),t.beginPath(),t.rect(i,i,n,o),t.clip(),t.strokeStyle=S("--mark"),t.lineWidth=1.5,r!==null&&t.strokeRect(i-2,i+(r-e.y)*h,n+4,Math.max(
2,h)),l!==null&&t.strokeRect(i+(l-e.x)*c,i-2,Math.max(2,c),o+4),t.restore()}savePng(){let{map:t}=this;if(!t)return;let e=a("canvas",{width:this.canvas.width,height:this.
canvas.height}),n=Ct(e);n.fillStyle=S("--paper"),n.fillRect(0,0,e.width,e.height),n.drawImage(this.canvas,0,0),e.toBlob(o=>o&&ie(o,`${t.name}.png`))}};function li(s,t,e){
let n=A(t,18);for(;n.length>2&&s.measureText(n).width>e;)n=`${Array.from(n).slice(0,-2).join("")}…`;return n}var ln=new Map,ci=["Your text","Type or paste a text"],hi=["Text for the encoder","Text for the encoder: type or paste it"],cn="Words that the decoder has read";
function Ht(s){let t=Z(s.text,u.texts.length)??-1;return u.texts[t]?t:u.texts.findIndex(Boolean)}function Dt(s){let{texts:t}=u;if(!t.length)return[];let{source:e}=t[s],
n=new Map,o=[];t.forEach((l,c)=>{n.has(l.source)||n.set(l.source,c),l.source===e&&o.push([String(c),`${l.window[0]+1} of ${l.window[1]}`])});let i=l=>M({text:l,
row:void 0}),r=[];if(n.size>1){let l=[...n.values()].map(h=>[String(h),t[h].name]),c=u.served?.includes("text")===!1?"Input":"Text";r.push(X(c,l,String(n.get(e)),
i))}return o.length>1&&r.push(X("Window",o,String(s),i)),[...r,Xe({},s)]}function Xe(s={},t=-1){let e=u.served??[];if(!e.length||!e.includes("text")&&t<0)return null;
let n=ln.get(t),o=e.includes("decoder"),i=hn(...o?hi:ci,n?.text),r=e.includes("text")?". Empty: the model writes its own answer":"",l=hn(cn,`${cn}${r}`,n?.decoder),
c=a("button",{type:"button",class:"primary"},"Show this text"),h=a("span",{class:"dim",role:"status"});c.addEventListener("click",async()=>{if(e.includes("text")&&
!i.value.trim()){h.textContent="Type a text first.",i.focus();return}c.disabled=!0,h.textContent="The model is reading it …";let p=e.includes("text")&&!l.value.
trim(),m=o&&!p?{decoder:l.value}:{},f=e.includes("text")?i.value:u.texts[t].at??t;try{let{texts:b,first:g}=await Hs({text:f,...m});b.forEach(($,q)=>u.texts[g+q]=
$),ln.set(g,{text:i.value,decoder:l.value}),M({...s,text:String(g),row:void 0})}catch(b){h.textContent=b instanceof Error?b.message:String(b)}c.disabled=!1});let d=[
e.includes("text")?i:null,o?l:null];return a("details",{class:"own"},a("summary",{},"Try your own text"),d,a("p",{},c," ",h))}function hn(s,t,e=""){let n=a("tex\
tarea",{rows:"5","aria-label":s,placeholder:t});return n.value=e,n}var zt="looks",Bt="seen",di=1e6,ui=80,pi=160,mi=70;function un(s,t){let e=s.second===void 0?void 0:N.get(s.second),n=new Ze(s,t,e??null);return{element:n.element,
start:()=>n.start(),resize:()=>n.paint(),stop:()=>n.stop(),moveTo:(o,i)=>n.moveTo(o,i)}}function dn(s){let{stack:t,layer:e,head:n,row:o,...i}=s;return JSON.stringify(
i)}var Ze=class{constructor(t,e,n){this.state=t,this.head=e,this.previous=e,this.second=n,this.text=Ht(t),this.looks=t.dir!==Bt,this.live=!0,this.turn=0,this.pinned=
null,this.token=null,this.cell=null,this.timer=0,this.texts=null,this.spoken=a("p",{class:"said"}),this.panes=(n===null?[e]:[e,n]).map(c=>this.makePane(c)),this.
textSide=a("div",{class:"textside"}),this.panel=n===null?new se(e):null,this.top=Je(e,n),this.strip=new Te(e,this.text),this.compare=this.compareControl();let o=this.
panel?.element??sn(e,n),i=a("div",{class:"panes"},this.panes.map(c=>c.box)),r=a("div",{class:"mapside"},this.controls(),i,this.textSide),l=a("div",{class:n===null?
"scene":"scene both"},r,o);this.element=a("div",{class:"headview"},this.top,l,this.strip.element)}makePane(t){let e=a("p",{class:"cellnote"}),n=a("canvas",{class:"\
profile","aria-hidden":"true"}),o=new Wt({point:h=>{this.cell=h,this.aim(h&&h[this.looks?0:1])},pick:h=>this.pin(h[this.looks?0:1]),drawn:()=>this.drawProfiles()}),
i=(h,d,p)=>a("button",{type:"button","aria-label":p,onclick:d},h),r=a("div",{class:"zoom"});r.append(i("+",()=>o.zoom(1.6),"Zoom in"),i("−",()=>o.zoom(1/1.6),
"Zoom out"),i("Whole map",()=>o.showAll(),"Whole map"),i("PNG",()=>o.savePng(),"Download the map as PNG"));let l=this.second===null?null:a("h3",{},`${u.heads[t]}\
 `,a("small",{},Y(t))),c=a("div",{class:"under"},fi(),r,e);return{head:t,map:null,view:o,profile:n,note:e,box:a("div",{class:"pane"},l,o.box,n,c)}}compareControl(){
let t=_("most_similar",this.head),{site:e}=v[this.head],n=u.heads.filter((l,c)=>v[c].site===e&&l!==u.heads[this.head]),o=[...new Set([t,...n])].filter(Boolean).
map(l=>a("option",{value:l})),i=a("input",{list:"others",placeholder:t?`e.g. ${t}`:"head",size:"9","aria-label":"Compare with head",autocomplete:"off",onchange:()=>{
let l=i.value.trim();M({second:N.has(l)?l:void 0})}});i.value=this.state.second??"";let r=a("label",{},a("span",{},"Compare with"),i);return a("div",{class:"cho\
ice"},r,a("datalist",{id:"others"},o))}controls(){let{norm:t,hide:e}=this.state;return a("div",{class:"controls"},Dt(this.text),this.compare,Ut("norm-weighted",
t==="1",n=>M({norm:n?"1":void 0}),w("norm-weighted")),Ut("hide delimiters",e==="1",n=>M({hide:n?"1":void 0}),w("hide delimiters")))}async start(){let t=await Promise.
all(this.panes.map(e=>mt(this.text,e.head))).catch(()=>[null]);this.live&&this.showMaps(t)}moveTo(t,e){let{map:n}=this.panes[0],o=n!==null&&!(n instanceof j);return this.
second===null&&this.texts&&o&&dn(t)===dn(this.state)?this.turnTo(t,e):null}async turnTo(t,e){this.state=t,this.previous=this.head,this.head=e,this.turn+=1;let{turn:n}=this,
o=setTimeout(()=>n===this.turn&&this.panes[0].view.clear(),ui),i=await mt(this.text,e).catch(()=>null);if(clearTimeout(o),!this.live||n!==this.turn)return;this.
panes[0].head=e;let r=this.panel?.element.querySelector("details[open]")!==null,[l,c,h]=[new se(e,r),Je(e,null),this.compareControl()];this.panel?.element.replaceWith(
l.element),this.top.replaceWith(c),this.compare.replaceWith(h),Object.assign(this,{panel:l,top:c,compare:h}),this.strip.show(e),this.showMaps([i])}showMaps(t){let{
norm:e,hide:n}=this.state;if(!t[0]){this.texts=null;let r=u.served?"The map of this head did not arrive.":"The map of this head is not in this page.";this.textSide.
replaceChildren(a("p",{class:"dim"},r)),this.panes.forEach(l=>l.box.remove());return}this.panes.forEach((r,l)=>{r.map=t[l]?.reweighted(e==="1",n==="1")??null,r.
map&&r.view.show(r.map)});let o=this.panes[0].map,i=this.token===this.pinned?null:this.token;this.pinned=Z(this.state.row,this.looks?o.queries:o.keys),this.token=
i??this.pinned,(this.texts?.rows.sequence!==o.rows||this.texts.columns.sequence!==o.columns)&&this.makeTexts(o),this.paint(),this.panel?.rows.show(t[0]),this.second===
null&&!u.served&&o.queries*o.keys<=di&&this.computeAhead()}async computeAhead(){let{turn:t}=this,e=Object.values(Nt),n=e.filter(o=>lt(this.previous,o)===this.head);
await ne();for(let o of[...n,...e]){if(await oe(),!this.live||t!==this.turn)return;await mt(this.text,lt(this.head,o)).catch(()=>null)}}stop(){this.live=!1;for(let{
map:t}of this.panes)t instanceof j&&t.cancel()}makeTexts(t){this.token=this.pinned,this.cell=null;let e=(l,c)=>new ft(l,{hover:h=>this.aim(h),pick:h=>this.pin(h),
label:c}),n=e(t.rows,t.square?"Tokens of the text":"Tokens that look"),o=t.square?n:e(t.columns,"Tokens that are looked at");this.texts={rows:n,columns:o};let i=this.
second===null?"Text":`Text, as ${u.heads[this.head]} reads it`,{note:r}=u.texts[this.text];this.textSide.replaceChildren(a("div",{class:"texttop"},a("h3",{},i),
this.directionControl()),r?a("p",{class:"dim"},I(r)):"",...new Set([n.box,o.box]),this.spoken)}directionControl(){let t=(o,i)=>{let l=a("input",{type:"radio",name:"\
way",value:o,onchange:()=>M({dir:o===zt?void 0:o})});return l.checked=o===zt===this.looks,a("label",{},l,i)},e=a("legend",{class:"quiet"},"Direction"),n=[t(zt,"\
where a token looks"),t(Bt,"who looks at a token")];return a("fieldset",{class:"way"},e,n,w("direction"))}aim(t){this.token=t??this.pinned,this.paint()}pin(t){this.
pinned=this.pinned===t?null:t,this.token=this.pinned,kt({row:this.pinned===null?void 0:String(t)}),this.paint()}paint(){let{texts:t,token:e,looks:n}=this,o=this.
panes[0].map;if(!t||!o)return;for(let c of this.panes)c.map&&(c.view.mark=n?{row:e,column:null}:{row:null,column:e},c.view.draw(),c.note.textContent=this.cellText(
c.map));let i=e===null?null:o.weights(n,e);e!==null&&!i&&this.fetchWeights(e);let[r,l]=n?[t.rows,t.columns]:[t.columns,t.rows];r===l?r.paint(i,e):(r.paint(null,
e),l.paint(i,null)),this.spoken.textContent=this.tokenText(o,i)}fetchWeights(t){clearTimeout(this.timer),this.timer=window.setTimeout(async()=>{if(!this.live||t!==
this.token)return;let e=this.panes.map(({map:n})=>n&&$t(n,this.looks,t));await Promise.all(e).catch(()=>{}),this.live&&t===this.token&&this.panes[0].map?.weights(
this.looks,t)&&this.paint()},this.pinned===t?0:mi)}cellText(t){if(!this.cell)return" ";let[e,n]=this.cell,o=t.weights(!0,e);return o?`“${A(t.rows.shown[e],16)}\
” → “${A(t.columns.shown[n],16)}” ${o[n].toFixed(3)}`:" "}tokenText(t,e){if(this.token===null)return"Point at a token, in the text or on the map; click\
 to keep it.";let[n,o]=this.looks?[t.rows,t.columns]:[t.columns,t.rows],i=`“${A(n.shown[this.token],24)}”, token ${this.token}`;if(!e)return`${i}: loading …`;
let r=c=>`“${A(o.shown[c],16)}” ${x(e[c])}`,l=te(e,6,.005).map(r).join(", ")||"no token with much weight";return`${i}, ${this.looks?"looks at":"is looked at\
 by"} ${l}`}drawProfiles(){for(let{map:t,view:e,profile:n}of this.panes){let o=this.token===null||!this.looks?null:t?.weights(!0,this.token)??null;n.style.visibility=
o?"visible":"hidden",o&&Ks(n,o,e.place)}}};function fi(){let s=_t(o=>ht(He(),o),pi*bt()),t=[0,.1,.25,.5,1].map(o=>{let i=a("span",{},String(o));return i.style.left=
`${100*o**y.weight_exponent}%`,i}),e=a("div",{class:"scale"},s,a("div",{class:"ticks","aria-hidden":"true"},t)),n=a("span",{},"attention weight, square-root sca\
le ",w("weight"));return a("div",{class:"weightbar"},e,n,a("span",{},"reading the map ",w("attention map")))}var pn=s=>X("Show",[[zt,"where the token looks"],[Bt,
"who looks at the token"]],s?zt:Bt,t=>M({dir:t===zt?void 0:t}),w("direction"));function fn(s,t){return s==="shares"?wi(t):s==="kind"?gi(t):ki(s)}function wi(s){let t=y.shares.map(({name:l,colour:c,meaning:h})=>mn(l,c,h,s));wn(y.two_lead)&&
t.push(mn(y.two_lead,"var(--dim)",ge,s));let e=gn().filter(([l])=>l&&!tt(l).length),n=e.length?a("div",{class:"legend"},kn(e,s)):null,o="the largest of position\
, word and match, or two of them; spread or rest where they dominate",i=`Ring: the five shares. Disc: ${o}.`,r=`Colour: ${o}. Weaker where it is small.`;return a(
"div",{},a("p",{class:"legend"},a("b",{},"What decides where a head looks ",w("shares")),a("span",{class:"dim ringhint"},i),a("span",{class:"dim tilehint"},r)),
a("ul",{class:"sharelist"},t),n,a("p",{class:"legend hints"},a("span",{class:"ringhint"},yn()),xn(),a("span",{class:"dim"},"Click a share or a kind to list its \
heads.")))}var wn=s=>u.heads.filter((t,e)=>ke(e)===s).length,mn=(s,t,e,n)=>a("li",{},bn("share",s,s,t,wn(s),n),a("span",{class:"meaning"},e));function gi(s){let t=a(
"span",{class:"dim"},"Click a kind to list its heads.");return a("div",{class:"legend"},kn(gn(),s),yn(),xn(),t)}function gn(){let s=new Map;for(let t of u.heads.
keys()){let e=ct(R(t));s.set(e,(s.get(e)??0)+1)}return[...s].sort((t,e)=>e[1]-t[1])}function kn(s,t){let e=s.map(([n,o])=>a("span",{class:"keyhelp"},bn("kind",n,
n,we(n),o,t),pe(n)));return[a("b",{},"Kinds of heads ",w("kind")),e]}function bn(s,t,e,n,o,i){let r=a("i",{class:"dot"});r.style.background=n;let l=i[s]===t,c=()=>M(
{share:void 0,kind:void 0,[s]:l?void 0:t}),h=a("button",{type:"button",class:"key","aria-pressed":String(l),onclick:c});return h.append(r,e,a("small",{},String(
o))),h}var yn=()=>u.importance?a("span",{class:"dim"},"Larger: more important ",w("importance")):null,xn=()=>nt.size?a("span",{class:"dim"},"Hollow: can be prun\
ed ",w("can be pruned")):null;function ki(s){let{ramp:t,low:e,high:n}=De(le(s));if(e>n)return a("p",{class:"legend"});let o=_t(r=>ht(t,r)),i=a("span",{class:"di\
m"},s," ",rt(s));return a("p",{class:"legend"},O(e),o,O(n),i)}var bi=["entropy","distance","first","special","previous","next","self","induction","same_token"];function yi(){let s=vs(),t=[u.importance??"",...bi].filter(o=>s.
includes(o)),e=o=>[o,o],n=t.map(e);return C("kind")&&n.unshift(["kind","kind of head"]),Jt()&&n.unshift(["shares","what decides where it looks"]),{options:n,more:s.
filter(o=>!t.includes(o)).map(e)}}function xi({share:s,kind:t}){let e=i=>ke(i)===s,n=i=>ct(R(i))===t,o=i=>u.heads.some((r,l)=>i(l));return o(e)?{share:s,has:e}:
o(n)?{kind:t,has:n}:{has:()=>!0}}function vn(s){let t=yi(),e=[...t.options,...t.more],n=e.find(([m])=>m===s.color)?.[0]??e[0]?.[0]??"kind",{share:o,kind:i,has:r}=xi(
s),l=new be(n,r),c=a("section",{class:"gridside","aria-label":"Grid of heads"});c.append($i(n,t),l.box,fn(n,{share:o,kind:i}),l.note);let h=[...u.heads.keys()].
filter(r),d=u.table?a("section",{class:"tableside","aria-label":"Table of heads"}):null,p=h.length;return o===y.two_lead?d?.append(ts("in which two shares lead",
I(ge),p)):o!==void 0&&d?.append(ts(`in which ${o} leads`,vi(o),p)),i!==void 0&&d?.append(ts(`of kind “${i}”`,Qt(i),p)),d?.append(on(s,h,n)),{element:a("div",
{class:"two"},c,d),start:()=>l.draw(),resize:()=>l.draw()}}var vi=s=>I(tt(s)[0]?.meaning??"");function $i(s,{options:t,more:e}){let n=Xe({view:"tokens"});if(!t.
length&&!e.length)return a("div",{class:"controls"},n);let o=s==="kind"||s==="shares"?w(s):rt(s);return a("div",{class:"controls"},X("Colour by",t,s,r=>M({color:r,
kind:void 0,share:void 0}),o,e),n)}function ts(s,t,e){let o=a("button",{type:"button",onclick:()=>M({kind:void 0,share:void 0})},"Show all heads");return a("p",
{class:"filter"},a("b",{},`${B(e,"head")} ${s}`),": ",t," ",o)}var Tt=320,es={left:66,right:12,top:10,bottom:46},Si=2;function Sn(s){let{curve:t,cost:e}=u,n=e?new ns(e):null,o=a("div",{class:"cutview"});if(!t?.curves.length)
return o.append(a("p",{class:"lead"},"The quality without some of the heads was not measured for this page.")),n&&o.append(n.element),{element:o};let i=new os(s,
t,n),r=a("p",{class:"lead"},a("b",{},Ti(t))," ",w("can be pruned")," ",Mi(t)),l=a("section",{},i.list);return o.append(r,a("div",{class:"two"},a("section",{class:"\
curveside"},i.element),l)),n&&o.append(n.element),{element:o,start:()=>i.draw(),resize:()=>i.draw()}}var Tn=s=>s.heads??s.curves[0].order.length;function Ti(s){
let t=ot(s.limit,3);return s.prunable?`${s.prunable} of ${Tn(s)} heads can be pruned for less than ${t} of quality.`:`No head can be pruned for less than ${t} o\
f quality.`}function Mi(s){if(!s.cut)return"Heads are switched off together, the least important first, and the model is measured again. Nothing is refitted her\
e: real pruning (multihead prune) does better.";let t=B(s.fitted??0,"document"),e=`its quality measured on ${s.judged} others`;return`Every point is a pruned mo\
del: its weights were refitted on ${t}, ${e}.`}var ns=class{constructor(t){this.cost=t,this.table=a("div",{class:"scroll wide"});let e=U("What attention costs",
"attention costs"),n=a("p",{class:"dim"},t.title.slice(1).join(" · "));this.element=a("section",{},e,n,this.table),this.show()}show(t){let{heading:e,rows:n}=this.
cost,o=t?.cost,i=o?[e[0],`with ${t.kept} heads`]:e,r=o?n.map(([p,m],f)=>[p,m,o[f]]):n,l=["none",y.format.missing],c=r.filter(([,...p])=>p.some(m=>!l.includes(m))),
h=a("tr",{},a("td"),i.map(p=>a("th",{scope:"col"},p))),d=c.map(([p,...m])=>a("tr",{},a("th",{scope:"row"},p," ",Ai(p)),m.map(f=>a("td",{},f))));this.table.replaceChildren(
a("table",{class:"cost"},a("thead",{},h),a("tbody",{},d)))}};function Ai(s){let t=`cost: ${s}`;return Object.hasOwn(V,t)?w(s,V[t]):null}var os=class{constructor(t,e,n){
this.curve=e,this.costs=n,this.total=Tn(e),this.which=Z(t.method,e.curves.length)??0,this.line=e.curves[this.which],this.points=$n(this.line.points);let o=Z(t.gone,
this.total+1)??e.prunable,[i,r]=e.cut?[this.points.length-1,this.nearest(o)]:[this.total,o];this.slider=a("input",{type:"range",min:0,max:i,value:r,"aria-label":"\
heads removed"}),this.slider.addEventListener("input",()=>{kt({gone:String(this.removed)}),this.draw()}),this.canvas=a("canvas",{class:"curve",role:"img","aria-\
label":"Quality lost against heads kept"}),this.frame=a("div",{class:"gridbox"},this.canvas),this.list=a("div",{class:"gone"});let l=a("h3",{},`Quality lost: ${e.
unit} `,w("quality lost")),c=a("label",{class:"slider"},a("span",{},"heads removed"),this.slider);this.element=a("div",{},l,this.frame,c,this.legend())}get removed(){
let t=Number(this.slider.value);return this.curve.cut?this.points[t].gone:t}nearest(t){let e=this.points.map(n=>Math.abs(n.gone-t));return e.indexOf(Math.min(...e))}legend(){
let{curves:t}=this.curve;if(t.length===1)return a("p",{class:"legend dim"},t[0].method," ",w("method"));let e=t.map((n,o)=>{let i=a("i",{class:"dot"});i.style.background=
We(o);let r=()=>M({method:String(o),gone:String(this.removed)}),l=String(o===this.which);return a("button",{type:"button",class:"key","aria-pressed":l,onclick:r},
i,n.method)});return a("p",{class:"legend",role:"group","aria-label":"method"},e,w("method"))}lossAt(t){let{points:e}=this,n=e.findIndex(r=>r.gone>=t);if(n<0)return e[e.
length-1].lost;if(n===0||e[n].gone===t)return e[n].lost;let[o,i]=[e[n-1],e[n]];return o.lost+(t-o.gone)/(i.gone-o.gone)*(i.lost-o.lost)}draw(){let{left:t,right:e,
top:n,bottom:o}=es,i=Math.min(this.frame.clientWidth||560,720),r=W(this.canvas,i,Tt),l=this.curve.curves.flatMap(({points:m})=>m.map(({lost:f})=>Math.min(f,Si))),
[c,h]=[Math.min(0,...l),Math.max(.01,this.curve.limit,...l)],d=m=>t+m/this.total*(i-t-e),p=m=>Tt-o-(m-c)/(h-c)*(Tt-n-o);this.drawAxes(r,i,d,p,c,h),r.save(),r.beginPath(),
r.rect(t,n-4,i-t,Tt-n-o+8),r.clip(),this.curve.curves.forEach((m,f)=>{let b=$n(m.points);r.strokeStyle=r.fillStyle=We(f),r.lineWidth=f===this.which?2.5:1.2,r.beginPath();
for(let g of b)r.lineTo(d(g.gone),p(g.lost));r.stroke();for(let g of b)r.beginPath(),r.arc(d(g.gone),p(g.lost),3,0,2*Math.PI),r.fill()}),r.restore(),r.strokeStyle=
S("--mark"),r.lineWidth=1.5,ss(r,d(this.removed),n,d(this.removed),Tt-o),this.describe(this.removed)}drawAxes(t,e,n,o,i,r){let{left:l,right:c,bottom:h}=es,d=o(this.
curve.limit);t.font=`11px ${z}`,t.fillStyle=S("--dim"),t.strokeStyle=S("--line"),t.lineWidth=1,t.textBaseline="middle";for(let p=0;p<=4;p+=1){let m=i+(r-i)*p/4;
t.textAlign="right",t.fillText(`${Math.round(100*m)} %`,l-8,o(m)),ss(t,l,o(m),e-c,o(m));let f=Math.round(this.total*(4-p)/4);t.textAlign=p===0?"left":p===4?"rig\
ht":"center",t.fillText(String(f),n(this.total-f),Tt-h+14)}t.textAlign="center",t.fillStyle=S("--ink"),t.font=`600 12px ${z}`,t.fillText("heads kept",(l+e-c)/2,
Tt-8),it(t,"quality lost",8,(es.top+Tt-h)/2),t.textAlign="right",t.fillStyle=S("--dim"),t.fillText(`limit ${Number((100*this.curve.limit).toPrecision(3))} %`,e-
c-4,d-9),t.setLineDash([4,4]),t.strokeStyle=S("--dim"),ss(t,l,d,e-c,d),t.setLineDash([])}describe(t){let e=this.points.find(d=>d.gone===t),n=e?.heads??this.line.
order.slice(0,t),i=`: ${e?"":"about "}${ot(this.lossAt(t))} of quality lost.`,r=`${B(t,"head")} removed, ${this.total-t} of ${this.total} heads kept`,l=u.sites.
map(d=>{let p=n.filter(f=>Vt(f)===d.label),m=a("td",{class:"few"},`${d.heads-p.length} of ${d.heads}`);return a("tr",{},a("th",{scope:"row"},d.label),m,a("td",{
class:"names"},Ei(p)))}),c=["layer","heads kept","removed heads"].map(d=>a("th",{scope:"col"},d)),h=a("table",{class:"gonetable"},a("thead",{},a("tr",{},c)),a("\
tbody",{},l));this.list.replaceChildren(a("p",{},a("b",{},r),i),...Oi(e),a("div",{class:"scroll"},h)),this.costs?.show(e)}},$n=s=>[...s].sort((t,e)=>t.gone-e.gone);
function Ei(s){return s.map((t,e)=>{let n=N.get(t);return[e?" ":"",n===void 0?t:a("a",{href:L(n)},t)]})}function Oi(s){let t=[];if(s?.parameters){let e=u.model.
parameters,n=ot(1-s.parameters/e);t.push(a("p",{},`${Gt(e)} parameters → ${Gt(s.parameters)} (${n} less)`))}if(s?.speed){let{ratio:e,low:n,high:o,batch:i,tokens:r,
rounds:l,verdict:c}=s.speed,h=c==="faster"||c==="slower"?`${O(e)} times as fast`:c,p=`${`${n.toFixed(2)} to ${o.toFixed(2)}`}, ${l} interleaved rounds, ${i} × ${r}\
 tokens`;t.push(a("p",{class:"dim"},`The model on this machine: ${h} (${p}).`))}return t}function ss(s,t,e,n,o){s.beginPath(),s.moveTo(t,e),s.lineTo(n,o),s.stroke()}var Ci=10,Mn=40,Li=18,qi=760;function An(s){let t=u.pairs,e=k=>t.measures.find(E=>E.name===k),n=e(s.measure)??e(t.by)??t.measures[0],o=[...new Set(t.heads.map(Vt))],
i=o.find(k=>k===s.scope),r=s.order!=="layer",l=(r?t.order:t.heads.map((k,E)=>E)).filter(k=>i===void 0||Vt(t.heads[k])===i),c=new is(t,n,l,s.pick),h=a("ol",{class:"\
toppairs"}),d=[["cluster","similar heads together"],["layer","by layer"]],p=[["all","all layers"],...o.map(k=>[k,k])],m=a("div",{class:"controls"},X("Measure",t.
measures.map(k=>[k.name,St(k)]),n.name,k=>M({measure:k}),w(St(n),Se(n))),X("Order",d,r?"cluster":"layer",k=>M({order:k==="layer"?k:void 0})),X("Heads",p,i??"all",
k=>M({scope:k==="all"?void 0:k}))),f=a("section",{class:"groups"},U("Most similar pairs"),h),b=a("section",{class:"pairside"},c.box,c.legend(),c.note),g=a("div",
{class:"two"},b,a("div",{},f,Ni(t)));return{element:a("div",{},a("p",{class:"lead"},Ye(n)),m,g),start:async()=>{let k=await $e(n);c.show(k);let E=Xs(n,k,l,Ci);h.
replaceChildren(...E.map(H=>Ri(t,n,H)))},resize:()=>c.draw()}}function Ri(s,t,[e,n,o]){let[i,r]=[s.heads[e],s.heads[n]],l=`${St(t)} ${x(o)}`;return a("li",{},a(
"a",{href:En(i,r)},`${i} and ${r}`),a("span",{class:"value"},l))}var En=(s,t)=>D({view:void 0,pick:void 0,...Ot(N.get(s)??0),second:t});function Ni({groups:s,notes:t}){
let e=i=>i.map((r,l)=>[l?" ":"",a("a",{href:L(N.get(r)??0)},r)]),n=s.length?a("ul",{},s.map(i=>a("li",{},e(i)))):a("p",{class:"dim"},"No two heads are similar e\
nough to form a group."),o=U(`Groups of similar heads (${s.length})`,"group");return a("section",{class:"groups"},o,n,t.map(i=>a("p",{class:"dim"},i)))}var is=class{constructor({
heads:t},e,n,o){this.names=n.map(r=>t[r]),this.measure=e,this.order=n,this.picked=o===void 0?-1:this.names.indexOf(o),this.side=Mn,this.gutter=40,this.values=null;
let i="Similarity of every two heads; the lists beside it name the most similar.";this.canvas=a("canvas",{class:"pairs",role:"img","aria-label":i}),this.box=a("\
div",{class:"pairbox"},this.canvas),this.note=a("p",{class:"hover"},"Point at a cell for its two heads; click to see them side by side."),this.canvas.addEventListener(
"pointermove",r=>{let l=this.under(r);this.canvas.style.cursor=l?"pointer":"default",l&&this.describe(...l)}),this.canvas.addEventListener("click",r=>{let l=this.
under(r);if(!l)return;let[c,h]=l.map(d=>this.names[d]);location.hash=c===h?L(N.get(c)??0):En(c,h)})}show(t){this.values=(e,n)=>t(this.order[e],this.order[n]),this.
draw(),this.picked>=0&&this.describe(this.picked,this.picked)}under(t){let[e,n]=at(t,this.canvas),[o,i]=[Math.floor((e-this.gutter)/this.side),Math.floor((n-this.
gutter)/this.side)],r=this.order.length;return i>=0&&o>=0&&i<r&&o<r?[i,o]:null}describe(t,e){let{values:n,names:o,measure:i}=this;if(!n)return;if(t!==e){this.note.
textContent=`${o[t]} and ${o[e]}: ${St(i)} ${x(n(t,e))}`;return}let r=ee(i)?1:-1,l=o.map((h,d)=>d).filter(h=>h!==t&&!Number.isNaN(n(t,h)));l.sort((h,d)=>r*(n(t,
h)-n(t,d)));let c=l.slice(0,3).map(h=>`${o[h]} ${x(n(t,h))}`);this.note.textContent=`Most similar to ${o[t]}: ${c.join(", ")}`}color(t){return Number.isNaN(t)?S(
"--line"):this.measure.low<0?ht("signed",(t+1)/2):ht("measure",ee(this.measure)?1-t:t)}legend(){let{low:t}=this.measure,e=_t(l=>this.color(t+l*(1-t))),n=l=>a("s\
pan",{class:"dim"},l),o=t<0?["−1, opposite","1, the same"]:["0, unrelated","1, the same"],[i,r]=ee(this.measure)?["0, the same","1, nothing in common"]:o;return a(
"p",{class:"legend"},n(i),e,n(r))}draw(){let{values:t,names:e}=this;if(!t)return;let n=e.length,o=W(this.canvas,10,10);o.font=`10px ${z}`,this.gutter=Li+8+Math.
ceil(Math.max(32,...e.map(d=>o.measureText(d).width)));let i=Math.min(this.box.clientWidth||600,qi);this.side=Math.max(1,Math.min(Mn,(i-this.gutter)/n));let{side:r,
gutter:l}=this;W(this.canvas,l+r*n,l+r*n);let c=r>12?r-1:r+.5;for(let d=0;d<n;d+=1)for(let p=0;p<n;p+=1)o.fillStyle=this.color(d===p?NaN:t(d,p)),o.fillRect(l+p*
r,l+d*r,c,c);o.font=`600 12px ${z}`,o.fillStyle=S("--ink"),o.textBaseline="middle",o.textAlign="center",o.fillText("head",l+r*n/2,7),it(o,"head",7,l+r*n/2),o.font=
`10px ${z}`;let h=Math.max(1,Math.ceil(13/r));for(let d=0;d<n;d+=h)o.fillStyle=S(d===this.picked?"--ink":"--dim"),o.textAlign="right",o.fillText(e[d],l-4,l+(d+.5)*
r),o.textAlign="left",it(o,e[d],l+(d+.5)*r,l-4);this.picked<0||(o.strokeStyle=S("--mark"),o.lineWidth=1.5,o.strokeRect(l,l+this.picked*r,r*n,r))}};var Ii=["before","after"],rs="Point at a square to read its weight; click it to choose its row.",Pi=" Switching a head off changes the maps of later layers, not\
 its own.",Me=class{constructor(t,e,n="trained model",o="token"){this.read=e,this.names={before:n,after:"with your switches"},this.title=a("h2",{}),this.hint=rs,
this.said=a("p",{class:"cellnote"}),this.panes=Ii.map(l=>{let c=p=>this.say(l,p),h=new Wt({point:c,pick:([p])=>t(p),drawn:()=>{}},o),d=a("h3",{},this.names[l]);
return{which:l,view:h,name:d,box:a("div",{class:"pane"},d,h.box)}});let[i,r]=this.panes;this.box=a("section",{class:"maps"},a("div",{class:"inputtop"},this.title,
w("attention map")),a("div",{class:"panes"},i.box,r.box),this.said)}update(t,e,n,o){this.title.textContent=`Where ${t} looks`,this.hint=n.after?rs+Pi:rs;for(let{
which:i,view:r,box:l}of this.panes){let c=n[i];l.hidden=!c,c&&(r.show(c),r.canvas.setAttribute("aria-label",`Attention map of ${t}, ${this.names[i]}. ${o}`),r.mark=
{row:e,column:null},r.draw())}this.say("after",null)}say(t,e){this.said.textContent=e?this.read(t,e):this.hint}};var Ae=["uniform","previous","first"];var On=s=>Array.from({length:s},(t,e)=>s-e).filter(t=>s%t===0);var _i=44,Cn={uniform:"all words equally",previous:"previous word",first:"first word"},Ee=class{constructor(t,e,n=o=>`Layer ${o}`){this.layers=t,this.title=n,this.
handlers=e,this.cells=t.map((r,l)=>r.map((c,h)=>this.cell(c,l,h))),this.bars=t.map((r,l)=>this.bar(l,r.length)),this.pattern=a("select",{"aria-label":"where the\
 chosen head looks"}),this.pattern.append(a("option",{value:""},"as it was trained"),...Ae.map(r=>a("option",{value:r},Cn[r]))),this.pattern.addEventListener("c\
hange",()=>{let r=Ae.find(l=>l===this.pattern.value)??null;e.pattern?.(this.at[0],this.at[1],r)}),this.patternName=a("span",{});let o=a("div",{class:"choice det\
ail"},a("label",{},this.patternName,this.pattern));o.append(w("pattern by hand"));let i=t.map((r,l)=>{let c=a("div",{class:"switchrow"},...this.cells[l].map(({box:h})=>h));
return c.style.setProperty("--heads",String(r.length)),a("div",{class:"switchlayer"},this.bars[l].box,c)});this.box=a("div",{class:"switches"},...i,e.pattern?o:
null),this.kinds=ji(t.flat()),this.at=[0,0]}cell({name:t,shown:e,kind:n,label:o},i,r){let l=a("span",{class:"dot"});n&&(l.style.backgroundColor=vt(n));let c=a("\
canvas",{class:"thumb","aria-hidden":"true",hidden:!0}),h=a("button",{type:"button",class:"headname","data-head":t,onclick:()=>this.handlers.select(i,r)},c,a("b",
{},l,e??t),n?a("small",{},o??n):null),d=a("input",{type:"checkbox","aria-label":`${t} on`,"data-switch":t});d.addEventListener("change",()=>this.handlers.scale(
i,r,d.checked?1:0,!1));let p=a("input",{type:"range",min:0,max:1,step:.05,"aria-label":`strength of ${t}`,"data-scale":t,oninput:()=>{m.textContent=x(Number(p.value)),
this.handlers.scale(i,r,Number(p.value),!0)},onchange:()=>this.handlers.settle?.()}),m=a("span",{class:"strength"});return{box:a("div",{class:"switch"},h,a("div",
{class:"dial"},d,p,m)),thumb:c,choose:h,on:d,slider:p,value:m}}bar(t,e){let n=this.title(t),o=a("input",{type:"checkbox","data-merge":t,"aria-label":`one head i\
n ${n}`});o.addEventListener("change",()=>this.handlers.merge?.(t,o.checked));let i=a("select",{"data-share":t,"aria-label":`keys/values of ${n}`});for(let c of On(
e))i.append(a("option",{value:c},String(c)));i.addEventListener("change",()=>this.handlers.share?.(t,Number(i.value)));let r=t===0;return{box:a("div",{class:"la\
yerbar"},a("b",{},n),this.handlers.merge?a("span",{class:"toggle"},a("label",{},o,a("span",{},"one head")),r?w("one head"):null):null,this.handlers.share?a("spa\
n",{class:"choice"},a("label",{},a("span",{},"keys/values"),i),r?w("keys/values"):null):null),merge:o,share:i}}update(t,e,n){this.at=[e,n],this.cells.forEach((o,i)=>o.
forEach(({box:r,choose:l,on:c,slider:h,value:d},p)=>{let{scale:m,pattern:f}=t[i].heads[p];c.checked=m>0,h.value=String(m),d.textContent=f?Cn[f]:x(m),r.classList.
toggle("isoff",m===0),r.classList.toggle("changed",m!==1||f!==null),l.setAttribute("aria-pressed",String(i===e&&p===n))})),this.bars.forEach(({merge:o,share:i},r)=>{
o.checked=t[r].merged,i.value=String(t[r].kvHeads)}),this.pattern.value=t[e].heads[n].pattern??"",this.pattern.disabled=t[e].merged,this.patternName.textContent=
`${this.layers[e][n].name} looks`}drawMaps(t){let e=Math.round(_i*bt());this.cells.forEach((n,o)=>n.forEach(({thumb:i},r)=>{let l=t(o,r);i.hidden=!1,W(i,e,e);let c={
x:0,y:0,w:l.keys,h:l.queries};Ct(i).putImageData(Zt(l,c,i.width,i.height),0,0)}))}};function ji(s){let t=new Map;for(let o of s)o.kind&&!t.has(o.kind)&&t.set(o.
kind,o);let e=[...t].map(([o,{meaning:i}])=>{let r=a("span",{class:"dot"});return r.style.backgroundColor=vt(o),a("span",{class:"kindkey"},r,o," ",w(o,i))}),n=a(
"span",{class:"dim"},"Kinds ",w("kind"));return e.length?a("p",{class:"kindkeys"},n,...e):null}function Ln(s,...t){let e=[...s.querySelectorAll("button")].findIndex(n=>n===document.activeElement);s.replaceChildren(...t),e>=0&&s.querySelectorAll("button")[e]?.
focus()}var Fi=24;function Rn(s,t,e="trained model"){return[...s.map(({word:o,before:i,after:r,actual:l})=>a("div",{class:l?"guess actual":"guess","data-word":o},a("spa\
n",{class:"guessed"},o,l?a("small",{}," (in the text)"):null),a("span",{class:"barpair"},Oe("before",i),t?Oe("after",r):null),a("span",{class:"chance"},qn(i),t?
a("b",{},qn(r)):null))),as(t,e)]}var as=(s,t)=>a("p",{class:"dim legendline"},a("span",{class:"swatch before"}),s?` ${t}`:` ${t}: no switch is changed`,s?a("spa\
n",{class:"swatch after"}):null,s?" with your switches":null);function Nn(s,t,e,n){let o=e.slice(0,Fi).map(({token:l,text:c})=>a("button",{type:"button",class:"\
suggestion",onclick:()=>n(l)},c)),i=e.length-o.length,r=i>0?a("span",{class:"dim"},` and ${i} more`):"";Ln(s,a("p",{},t),...o,r)}var qn=s=>s<.001?"< 0.1 %":ot(
s,s<.01?1:2);function Oe(s,t){let e=a("span",{class:`bar ${s}`});return e.style.width=`${Math.max(.5,100*t)}%`,e}var Wi=200;function Hi(s){let t=new Map;for(let e of s.split(",")){let[n,o]=e.split(":"),[i,r]=[N.get(n),Number(o)];i!==void 0&&o&&r>=0&&r<1&&t.set(i,r)}return t}
var Ce=class{constructor(){this.scales=new Map,this.past=[]}restore(t){t!==void 0&&t!==this.text&&(this.scales=Hi(t))}get text(){return[...this.scales].sort(([t],[
e])=>t-e).map(([t,e])=>`${u.heads[t]}:${Number(e.toFixed(2))}`).join(",")}get byName(){return Object.fromEntries([...this.scales].map(([t,e])=>[u.heads[t],e]))}get settings(){
let t=u.sites.map(({heads:e})=>({heads:[],merged:!1,kvHeads:e}));return v.forEach(({site:e},n)=>t[e].heads.push({scale:this.scales.get(n)??1,pattern:null})),t}set(t,e){
let n=new Map(this.scales);n.delete(t),e<1&&n.set(t,e),this.change(n)}reset(){this.scales.size&&this.change(new Map)}change(t){this.past.push(this.scales),this.
past.length>Wi&&this.past.shift(),this.scales=t}undo(){this.scales=this.past.pop()??this.scales}};var Di=60,In=2048,ls=4,cs="unchanged model",zi="The encoder reads one text, the decoder writes the other word by word. ",Bi=" This model has a prediction for ev\
ery token: choose one.",Ui={next:"This model predicts the next token. The bars show the likeliest tokens after the chosen one.",masked:"This model fills in hidd\
en tokens. The chosen token is hidden, and the bars show the likeliest tokens at its position. For the list below, each token is hidden in turn.",classes:"This \
model sorts its input into classes. The bars show the likeliest classes.",vector:"This model predicts no words: it turns its input into a vector. The cosine com\
pares the vector with your switches to the vector of the unchanged model: 1 is the same direction, 0 an unrelated one."},Q=new Ce,hs=s=>a("h2",{class:"sequencen\
ame"},s),Vi=({shown:s})=>s.some((t,e)=>t!==String(e));function Ki(s){let{stack:t,layer:e}=u.sites[s];return t?t==="cross"?`Cross-attention, layer ${e}`:`${t[0].
toUpperCase()}${t.slice(1)} layer ${e}`:`Layer ${e}`}function Pn(s){let t=new ds(s);return{element:t.element,start:()=>t.ask(),resize:()=>t.drawMaps(),stop:()=>t.
stop()}}var ds=class{constructor(t){Q.restore(t.scale),this.text=Ht(t);let{sequences:e,layers:n}=u.texts[this.text];this.predicted=n[n.length-1].rows,this.sequence=
e[this.predicted],this.source=this.predicted?e[0]:null,this.head=Kt(t)??0,this.token=Z(t.row,this.sequence.shown.length)??this.lastWord(),this.abort=new AbortController,
this.timer=0,this.answer=null,this.maps={before:null,after:null};let o=l=>this.choose(l);this.tokens=new ft(this.sequence,{hover:()=>{},pick:o,label:"Tokens; ch\
oose one"});let i=l=>this.sameSequence&&o(l);this.pair=new Me(i,(l,c)=>this.read(l,c),cs),this.grid=u.heads.length>In?null:this.makeGrid();let r=l=>()=>this.act(
l);this.undo=a("button",{type:"button",id:"undo",onclick:r(()=>Q.undo())},"Undo"),this.reset=a("button",{type:"button",id:"reset",onclick:r(()=>Q.reset())},"Res\
et"),this.title=a("h2",{}),this.meaning=a("p",{class:"dim"}),this.bars=a("div",{class:"predictions"}),this.list=a("div",{class:"changes"}),this.fault=a("p",{class:"\
note",role:"alert"}),this.prediction=a("section",{class:"prediction","aria-label":"prediction","aria-busy":"true"},a("div",{class:"inputtop"},this.title),this.fault,
this.meaning,this.bars,this.list),this.element=this.layout(),this.show()}layout(){let t=`The grid is for up to ${In} heads; this model has ${u.heads.length}.`,e=a(
"section",{class:"heads","aria-label":"heads"},a("div",{class:"inputtop"},a("h2",{},"Heads"),w("switch"),this.undo,this.reset),this.grid?.box??a("p",{class:"dim"},
t),this.grid?.kinds),n="Switch a head off (untick it) or scale its output with the slider, and compare the predictions before and after. The model runs again af\
ter every change.",o=a("div",{class:"controls"},Dt(this.text));o.querySelector("details")?.setAttribute("open",""),o.querySelector("textarea")?.setAttribute("ro\
ws","2");let i=a("div",{class:"switchview"},a("p",{class:"lead"},n),o,this.tokens.box);i.append(a("div",{class:"two"},e,this.prediction),this.pair.box);let{note:r}=u.
texts[this.text];return r&&this.tokens.box.before(a("p",{class:"note textnote"},I(r))),!(u.served?.includes("text")||this.source)&&!Vi(this.sequence)&&this.tokens.
box.prepend(hs("Positions of the input")),this.source&&this.tokens.box.before(this.sourceText(this.source)),i.addEventListener("keydown",c=>this.onKey(c)),i}sourceText(t){
let e=new ft(t,{hover:()=>{},pick:()=>{},label:"Tokens of the encoder"});return this.tokens.box.prepend(hs("The decoder has read")),e.box.prepend(hs("The encode\
r reads")),e.box}makeGrid(){let t=u.sites.map((n,o)=>Array.from({length:n.heads},(i,r)=>{let l=G[o]+r,c=ct(R(l)),h=c?{kind:c,label:Y(l),meaning:Qt(c)}:{},d=u.heads[l];
return{name:d,shown:d.replace(/^.*\./,""),...h}})),e={select:(n,o)=>this.act(()=>this.head=G[n]+o),scale:(n,o,i)=>this.act(()=>{this.head=G[n]+o,Q.set(this.head,
i)})};return new Ee(t,e,Ki)}get sameSequence(){return u.texts[this.text].layers[v[this.head].site].rows===this.predicted}lastWord(){let{special:t}=this.sequence,
e=t.lastIndexOf(!1);return e<0?t.length-1:e}choose(t){this.act(()=>this.token=t)}act(t){t(),this.show(),this.abort.abort(),this.prediction.setAttribute("aria-bu\
sy","true"),clearTimeout(this.timer),this.timer=window.setTimeout(()=>this.ask(),Di)}stop(){clearTimeout(this.timer),this.abort.abort()}show(){let{site:t,head:e}=v[this.
head];this.grid?.update(Q.settings,t,e),this.undo.disabled=!Q.past.length,this.reset.disabled=!Q.scales.size,this.paintText()}paintText(){let{cosines:t}=this.answer??
{};t&&Q.scales.size?this.tokens.paint(Float32Array.from(t,e=>1-e),null):this.tokens.paint(null,this.token)}async ask(){this.abort.abort(),this.abort=new AbortController;
let{signal:t}=this.abort,{head:e,token:n,text:o}=this;kt({...Ot(e),row:String(n),scale:Q.text||void 0});let i=u.heads[e],r=Q.scales.size>0,l={text:u.texts[o].at??
o,scales:Q.byName,token:n};try{let c=await Ds(r?{...l,head:i}:l,t),h=c.map===null?null:await ae(c.map),d=await mt(o,e).catch(()=>null);if(t.aborted)return;this.
answer=c;let p=u.texts[o].layers[v[e].site];this.maps={before:d,after:h&&pt.fromCodes(i,u.texts[o],p,h)},this.fault.textContent=""}catch(c){if(Xt(c)||t.aborted)
return;this.answer=null,this.maps={before:null,after:null},this.fault.textContent=c instanceof Error?c.message:String(c)}this.draw(r),this.prediction.setAttribute(
"aria-busy","false")}draw(t){let{answer:e}=this;this.bars.replaceChildren(),this.list.replaceChildren();let n=e?.vector?` The vector: ${e.vector}.`:"",o=this.source&&
e?.reading==="next"?zi:"",i=e?.reading==="classes"&&(e.rows??1)>1?Bi:"";this.meaning.textContent=e?o+Ui[e.reading]+i+n:"",this.title.textContent=e?this.heading(
e):"No prediction",e?.top&&this.drawTop(e,t),e?.cosine!==void 0&&this.drawCosine(e.cosine,e.change??0,t);let r=e&&t?this.changes(e):[];if(e&&t){let c=this.changeTitle(
e,r.length);Nn(this.list,c,r,h=>this.choose(h)),st(c)}let l=new Set(e?.changed?.map(({token:c})=>c));this.paintText(),this.tokens.spans.forEach((c,h)=>c.classList.
toggle("switched",l.has(this.tokens.from+h))),this.drawMaps()}heading({reading:t,rows:e}){let n=`“${this.word(this.token)}”`;return t==="vector"?"The vector\
 of the input":t==="classes"?(e??1)>1?`The class of ${n}`:"The class of the input":t==="next"?`Next token after ${n}`:`In place of ${n}`}drawTop({top:t=[],actual:e},n){
let o=t.map(({id:i,word:r,before:l,after:c})=>({word:A(r,16),before:l,after:c,actual:i===e}));this.bars.replaceChildren(...Rn(o,n,cs))}drawCosine(t,e,n){let o=(l,c)=>a(
"div",{class:"guess"},a("span",{class:"guessed"},"cosine"),a("span",{class:"barpair"},Oe(l,Math.max(0,c))),a("span",{class:"chance"},a("b",{"data-cosine":l},c.toFixed(
ls)))),i=n?[o("before",1),o("after",t)]:[o("before",1)],r=`The vector moved by ${ot(e,2)} of its length.`;this.bars.replaceChildren(...i,as(n,cs),n?a("p",{},r):
"")}changes({changed:t,cosines:e,reading:n,rows:o=1}){let i=r=>A(this.word(r),20);if(t){let r=(c,h)=>`${A(c,20)} → ${A(h,20)}`,l=c=>o===1&&n==="classes"?"":`${i(
c)}: `;return t.map(({token:c,before:h,after:d})=>({token:c,text:l(c)+r(h,d)}))}return(e??[]).map((r,l)=>({token:l,cosine:r,text:`${i(l)} ${r.toFixed(ls)}`})).filter(
({cosine:r})=>1-r>=.5*10**-ls).sort((r,l)=>r.cosine-l.cosine)}changeTitle({reading:t,shown:e,cosines:n,rows:o=1},i){let r=`${i} of ${B(e.length,"token")}`;return t===
"vector"?n?i?`The vectors of ${r} turned; the text is shaded by it. Their cosines, the most turned first:`:"No token's vector turned.":"This model returns one v\
ector for the whole input.":t==="classes"&&o===1?`The likeliest class ${i?"changed:":"is the same."}`:t==="classes"?`The likeliest class ${i?`of ${r} changed:`:
"is the same everywhere."}`:i?`The likeliest ${t==="next"?"next token changed after":"token changed at"} ${r} (underlined):`:"The likeliest token is the same ev\
erywhere."}drawMaps(){if(this.pair.box.hidden=!this.maps.before,!this.maps.before)return;let t="The view of this head has the same weights.",e=this.sameSequence?
this.token:null;this.pair.update(u.heads[this.head],e,this.maps,t)}read(t,e){let n=this.maps[t];if(!n)return"";let[o,i]=[n.rows.shown[e[0]],n.columns.shown[e[1]]].
map(r=>`“${A(r,24)}”`);return`${o} looks at ${i} with weight ${x(n.row(e[0])[e[1]])}`}word(t){return this.sequence.shown[t]}onKey(t){t.key.toLowerCase()!=="\
z"||!(t.ctrlKey||t.metaKey)||t.shiftKey||t.target instanceof HTMLTextAreaElement||(t.preventDefault(),this.act(()=>Q.undo()))}};var _n={holds:"✓ holds",fails:"✗ fails","holds only if":"~ conditional"},jn=s=>Object.hasOwn(_n,s)?_n[s]:s;function Fn(){let{about:s,statements:t}=u.theory,
e=["#","statement","verdict","as computed","as stated"].map(c=>{let h=c==="#"?null:[" ",w(c)];return a("th",{scope:"col"},c,h)}),n=a("tbody",{},t.map(Yi)),o=a("\
table",{class:"theory"},a("thead",{},a("tr",{},e)),n),i=`Statements about multi-head attention from papers and textbooks. Both sides were computed on this model\
: ${Gi(t)}. Click a statement for its formula and the result of each layer.`,r={class:"scroll wide",tabindex:"0",role:"region","aria-label":"Statements and verd\
icts"},l=[a("p",{class:"lead"},i),a("p",{class:"dim"},s)];return{element:a("div",{},l,a("div",r,o))}}function Gi(s){let t=new Map;for(let{verdict:e}of s)t.set(e,
(t.get(e)??0)+1);return[...t].map(([e,n])=>e==="holds only if"?`${n} ${n===1?"holds":"hold"} under a condition`:e==="holds"||e==="fails"?`${n} ${n===1?e:e.slice(
0,-1)}`:`${n} ${n===1?"has":"have"} ${e}`).join(", ")}function Yi(s){let{id:t,title:e,formula:n,verdict:o,tally:i}=s,r=Object.entries(s.layers),[l,c]=r.find(([,
f])=>f.verdict===o)??r[0],h=s.holds_when.replace(/\.$/,""),d=r.map(([f,b])=>a("tr",{},a("th",{scope:"row"},f),a("td",{},jn(b.verdict)),a("td",{},b.lhs),a("td",{},
b.rhs))),p=a("details",{},a("summary",{},e),a("code",{},n),a("p",{},c.because));h&&p.append(a("p",{class:"dim"},`True when ${h}.`)),p.append(a("table",{class:"l\
ayers"},a("tbody",{},d)));let m=i.replace(/^(holds|fails|conditional)/,f=>jn(f==="conditional"?"holds only if":f));return a("tr",{class:`verdict ${o.replaceAll(
" ","-")}`,"data-key":t},a("th",{scope:"row"},t),a("td",{class:"statement"},p),a("td",{class:"result"},m),a("td",{title:l},c.lhs),a("td",{},c.rhs))}var Wn=1024;function Hn(s){let t=new us(s,Ht(s)),e=l=>M({hide:l?"1":void 0}),n=Ut("hide delimiters",t.hide,e,w("hide delimiters")),o=a("div",{class:"controls"},
Dt(t.text),pn(t.looks),n),r=a("div",{class:"tokensview"},a("p",{class:"lead"},"Click a token of the text. Each box is a head and shows the token with the larges\
t weight: the darker the box, the larger the weight. Click a box to open its head."),o);return r.append(t.tokens.box,t.spoken,Qi(),t.table),{element:r,start:()=>t.
choose(t.token),stop:()=>t.stop()}}var us=class{constructor(t,e){this.text=e,this.looks=t.dir!==Bt,this.hide=t.hide==="1",this.live=!0,this.turn=0,this.sequence=
u.texts[e].sequences[0];let n=this.sequence.special.findIndex((i,r)=>!i&&r>0);this.token=Z(t.row,this.sequence.shown.length)??Math.max(0,n);let o=i=>{kt({row:String(
i)}),this.choose(i)};this.tokens=new ft(this.sequence,{hover:()=>{},pick:o,label:"Tokens of the text"}),this.spoken=a("p",{class:"said",role:"status"}),this.boxes=
[],this.table=u.heads.length>Wn?Ji():this.makeTable()}makeTable(){let t=1+Math.max(...v.map(l=>l.number)),e=Array.from({length:t},(l,c)=>a("th",{scope:"col"},String(
c))),n=a("td",{class:"corner"},"layer ↓ head →"),o=u.sites.map((l,c)=>{let h=Array.from({length:t},()=>a("td"));for(let d=G[c];d<G[c]+l.heads;d+=1){let p=a(
"a",{href:L(d),"aria-label":u.heads[d]});this.boxes.push(p),h[v[d].number].append(p)}return a("tr",{},a("th",{scope:"row"},l.label),h)}),i=a("table",{class:"tie\
s"},a("thead",{},a("tr",{},n,e)),a("tbody",{},o));return a("div",{class:"scroll wide",tabindex:"0",role:"region","aria-label":"The token with the largest weight\
, for every head"},i)}stop(){this.live=!1}async choose(t){this.token=t,this.turn+=1;let{turn:e,looks:n}=this,o=`“${A(this.sequence.shown[t],40)}”, token ${t}\
.`,i=new Float32Array(this.sequence.shown.length),r=0;this.tokens.paint(null,t);for(let c=0;c<this.boxes.length;c+=1){let h=await Rt(this.text,c).catch(()=>null);
if(!this.live||e!==this.turn)return;let[d,p]=h?n?[h.rows,h.columns]:[h.columns,h.rows]:[null,null];if(!h||!p||d!==this.sequence)continue;if(h instanceof j&&!n){
this.spoken.textContent=`${o} On a text this long, open a head to see who looks at a token.`;return}n||await h.complete();let m=await $t(h.reweighted(!1,this.hide),
n,t).catch(()=>null);if(!m||!this.live||e!==this.turn)return;if(this.showBox(c,m,p),r+=1,p===this.sequence)for(let f=0;f<i.length;f+=1)i[f]+=m[f]}this.tokens.paint(
i.map(c=>c/Math.max(1,r)),t);let l=n?"where it looks":"who looks at it";this.spoken.textContent=`${o} Shaded: ${l}, the mean over all heads.`}showBox(t,e,n){let o=0;
for(let l=1;l<e.length;l+=1)e[l]>e[o]&&(o=l);let i=this.boxes[t],r=Dn(e[o]);i.textContent=A(n.shown[o],7),i.href=D({view:void 0,...Ot(t),row:String(this.token)}),
i.title=`${u.heads[t]}: ${A(n.shown[o],60)} ${x(e[o])}`,i.setAttribute("aria-label",i.title),i.style.backgroundColor=zn(r),i.classList.toggle("strong",r>55)}},Dn=s=>Math.
round(78*s**y.weight_exponent),zn=s=>`color-mix(in srgb, var(--shade) ${s}%, transparent)`;function Qi(){let s=[.01,.1,.25,.5,1].map(e=>{let n=a("span",{},String(
e));return n.style.backgroundColor=zn(Dn(e)),n});return a("p",{class:"shading"},a("span",{class:"steps"},s)," ","largest weight of the head, square-root scale ",
w("shading"))}var Ji=()=>a("p",{class:"dim"},`This view is for up to ${Wn} heads; this model has ${u.heads.length}.`);var Xi=()=>u.served!==null&&u.texts.some(Boolean),Le=[{key:"heads",title:"Heads",make:vn,has:()=>!0},{key:"tokens",title:"Tokens",make:Hn,has:()=>u.texts.length>
0},{key:"switches",title:"Switches",make:Pn,has:Xi},{key:"similarity",title:"Similarity",make:An,has:()=>u.pairs!==null},{key:"pruning",title:"Pruning",make:Sn,
has:()=>u.curve!==null||u.cost!==null},{key:"theory",title:"Theory",make:Fn,has:()=>u.theory!==null}],Mt=null,ps=0;function Zi(s,t){let e=Le.find(n=>n.key===s.view&&
n.has());return e||(t===null?Le[0]:null)}async function qe(){let s=performance.now();ps+=1;let t=ps,e=he(),n=de(),o=Kt(n),i=Zi(n,o),r=!i&&o!==null?Mt?.moveTo?.(
n,o):null,l=i?.key??"head";r||(Mt?.stop?.(),Mt=i||o===null?(i??Le[0]).make(n):un(n,o),P("main").replaceChildren(Mt.element));for(let c of P("views").querySelectorAll(
"a"))c.href=Vn(c.dataset.view??"heads",n.text),c.dataset.view===(i?.key??"heads")?c.setAttribute("aria-current","page"):c.removeAttribute("aria-current");document.
body.dataset.view=l,await(r??Mt?.start?.()),t===ps&&(!i&&o!==null&&st(ye(o)),document.body.dataset.ready=`${l} ${e}`,document.body.dataset.took=(performance.now()-
s).toFixed(1))}var Bn=0;function tr(){clearTimeout(Bn),Bn=window.setTimeout(qe)}var Vn=(s,t)=>`#view=${s}${t?`&text=${encodeURIComponent(t)}`:""}`,er="This page\
 is incomplete: the run was stopped before everything was measured.";function sr(){let{notes:s,model:t,version:e,made:n}=u,o=u.stopped?[er]:[];P("card").replaceChildren(
...nr()),P("findings").replaceChildren(...o.map(h=>a("p",{class:"finding note"},h)),...or());let i=()=>document.documentElement.dataset.theme==="dark"?"light":"\
dark";P("tools").replaceChildren(a("button",{type:"button",id:"theme",onclick:()=>ms(i())},"Light / dark"),a("button",{type:"button",onclick:()=>window.print()},
"Print"));let l=Le.filter(h=>h.has()).map(({key:h,title:d})=>a("a",{href:Vn(h),"data-view":h},d));P("views").replaceChildren(...l),P("foot").replaceChildren(...[
...o,...s].map(h=>a("p",{class:"note"},h)),a("p",{},`multihead ${e}, ${n}. ${t.class}. On a head, arrow keys move to other heads and layers, and Esc leads back \
to all heads. The URL saves this view.`))}function nr(){let{model:s,corpus:t,sites:e,heads:n}=u,o=e.reduce((p,m)=>p+m.kv,0),i=new Set(e.map(p=>p.heads)),r=[...i][0],
l=i.size===1?`${B(e.length,"layer")} × ${B(r,"head")}`:`${n.length} heads in ${B(e.length,"layer")}`,c=B(t.documents,"document"),h=t.tokens?`${t.tokens.toLocaleString(
"en")} tokens in ${c}`:c;return[[Gt(s.parameters),"parameters","parameters"],[l,"","head"],[String(o),o===n.length?"kv heads, one each":"kv heads","kv heads"],[
h,t.name?`of ${A(t.name,60)}`:"","token"]].map(([p,m,f])=>a("span",{},a("b",{},p),` ${m} `,w(f)))}var Un={heads:"Show heads →",similarity:"Show similarity →",
pruning:"Show pruning →",theory:"Show theory →"};function or(){return u.findings.map(({text:s,link:t})=>{let e=new URLSearchParams(t.slice(1)).get("view")??
"",n=Object.hasOwn(Un,e)?Un[e]:"Show head →",o=a("span",{},ir(s.replace(/(\d) %/g,"$1 %"))),i=a("a",{class:"arrow",href:t,onclick:()=>P("views").scrollIntoView()},
n);return a("div",{class:"finding"},o,i)})}function ir(s){return s.split(/([\w.]*L\d+H\d+)/).map(t=>{let e=N.get(t);return e===void 0?t:a("a",{href:L(e)},t)})}function ms(s){
document.documentElement.dataset.theme=s,Ns(),Mt?.stop?.(),Mt=null,u&&qe()}function rr(s){if(re(s,"input, select, textarea, .tokens, canvas.grid, [contenteditab\
le]")||s.altKey||s.ctrlKey||s.metaKey||s.shiftKey)return;let t=Kt(de());if(document.body.dataset.view!=="head"||t===null)return;s.key==="Escape"&&M(ue);let e=Nt[s.
key];e&&(s.preventDefault(),Ie(L(lt(t,e))),tr())}async function ar(){let s=window.matchMedia("(prefers-color-scheme: dark)");if(ms(s.matches?"dark":"light"),s.addEventListener(
"change",()=>ms(s.matches?"dark":"light")),typeof DecompressionStream>"u"){P("main").append(a("p",{class:"lead"},"This browser is too old for this page. Use Chr\
ome 111, Safari 16.4, Firefox 113 or a newer one."));return}await xs(),sr(),qe(),window.addEventListener("hashchange",()=>location.hash!=="#main"&&qe()),window.
addEventListener("keydown",rr);let t=0;window.addEventListener("resize",()=>{clearTimeout(t),t=window.setTimeout(()=>Mt?.resize?.(),80)})}async function lr(s,t=0,{
norm:e=!1,hide:n=!1}={}){let o=await mt(t,N.get(s)??-1);if(!o||o instanceof j)return null;let i=o.reweighted(e,n);return Array.from({length:o.queries},(r,l)=>Array.
from(i.row(l)))}async function cr(s,t,e=0,{norm:n=!1,hide:o=!1,looks:i=!0}={}){let l=await(i?Rt:mt)(e,N.get(s)??-1);return l&&Array.from(await $t(l.reweighted(n,
o),i,t))}Object.defineProperty(window,"multihead",{value:Object.freeze({weights:lr,row:cr,get data(){return u}})});ar();})();
