"use strict";(()=>{function q(s){let t=document.getElementById(s);if(!t)throw new Error(`the page has no element #${s}`);return t}function a(s,t={},...e){let n=document.createElement(
s);for(let[o,i]of Object.entries(t))i==null||i===!1||(typeof i=="function"?n.addEventListener(o.slice(2),i):n.setAttribute(o,i===!0?"":String(i)));return We(n,e),
n}function We(s,t){for(let e of t)Array.isArray(e)?We(s,e):e!=null&&s.append(e)}function W(s,t={},...e){let n=document.createElementNS("http://www.w3.org/2000/s\
vg",s);for(let[o,i]of Object.entries(t))n.setAttribute(o,String(i));return n.append(...e),n}function U(s,t,e,n,o){let i=a("select",{onchange:()=>n(i.value)});for(let[
r,l]of t){let c=a("option",{value:r},l);c.selected=r===e,i.append(c)}return a("div",{class:"choice"},a("label",{},a("span",{},s),i),o)}function Rt(s,t,e,n){let o=a(
"input",{type:"checkbox",onchange:()=>e(o.checked)});return o.checked=t,a("div",{class:"toggle"},a("label",{},o,a("span",{},s)),n)}function et(s){q("live").textContent=
s}function zt(){return new Promise(s=>{"requestIdleCallback"in window?requestIdleCallback(s,{timeout:500}):setTimeout(s,100)})}function Ut(s,t){let e=a("a",{href:URL.
createObjectURL(s),download:t});e.click(),setTimeout(()=>URL.revokeObjectURL(e.href),1e4)}function X(s,t){let e=t.getBoundingClientRect();return[s.clientX-e.left,
s.clientY-e.top]}function Vt(s,t){return s.target instanceof Element?s.target.closest(t):null}var Fe=null,He=Uint8Array;async function De(s){let t=He.fromBase64?He.fromBase64(s):Uint8Array.from(atob(s),n=>n.charCodeAt(0)),e=new Response(t).body;return new Uint8Array(
await new Response(e.pipeThrough(new DecompressionStream("deflate-raw"))).arrayBuffer())}async function Be(){let s=q("data"),t=JSON.parse(new TextDecoder().decode(
await De(s.textContent??"")));return s.remove(),t}function ut(s){return Fe??=(q("lines").textContent??"").split(`
`),De(Fe[s])}var st=s=>new Float32Array(s.buffer,s.byteOffset,s.byteLength/4),de=s=>new Uint32Array(s.buffer,s.byteOffset,s.byteLength/4),Vs=Float64Array.from({
length:32},(s,t)=>2**((t||1)-25));function ze(s){let t=s.length/2,e=new Float32Array(t);for(let n=0;n<t;n+=1){let o=s[n]<<8|s[t+n],i=o>>10&31,r=((i?1024:0)+(o&1023))*
Vs[i];e[n]=o&32768?-r:r}return e}var L;function Ue(s){L=s}var u,b=[],P=new Map,nt=[],Z=new Set;async function Ve(){u=await Be(),Ue(u.charts),u.served&&(u.texts=Ks(u.texts)),P=new Map(u.heads.map((s,t)=>[s,t])),b=[],nt=
[],u.sites.forEach((s,t)=>{nt.push(b.length);for(let e=0;e<s.heads;e+=1)b.push({site:t,head:e,number:Gs(u.heads[b.length])})}),Z=Ys()}function Ks(s){let t=[];for(let e of s)
t[e.at??0]=e;return t}var Gs=s=>Number(/H(\d+)$/.exec(s)?.[1]??0),Pt=s=>s.replace(/H\d+$/,"");function Ys(){let s=u.curve,t=s?.curves[0];if(!s||!t)return new Set(
[]);let e=t.points.find(n=>n.gone===s.prunable);return new Set(e?.heads??t.order.slice(0,s.prunable))}function M(s){return s&&u.table&&Object.hasOwn(u.table,s)?
u.table[s]:null}var pt=(s,t)=>M(s)?.values[t]??null;function S(s,t){let e=pt(s,t);return typeof e=="number"?e:null}function B(s,t){let e=pt(s,t);return typeof e==
"string"?e:""}var ue=s=>u.heads.map((t,e)=>S(s,e)),Ke=()=>Object.keys(u.table??{}).filter(s=>M(s)?.values.some(t=>typeof t=="number"));function Ge(s,t){let e=M(
s)?.why??{};return Object.keys(e).find(n=>e[n].includes(u.heads[t]))??""}var C=s=>B("kind",s),Ye=s=>[C(s),B("kind_detail",s)].filter(Boolean).join(" "),ot=s=>S(
u.importance,s);function Kt(s){let t=u.importance?S(`${u.importance}_error`,s):null;return t===null?null:1.96*t}function mt(s,[t,e]){let n=b[s],o=u.sites.length,
i=(n.site+t+o)%o,r=u.sites[i].heads,l=t?Math.min(n.head,r-1):(n.head+e+r)%r;return nt[i]+l}var Gt={ArrowLeft:[0,-1],ArrowRight:[0,1],ArrowUp:[-1,0],ArrowDown:[1,
0]};var Yt=()=>Object.fromEntries(new URLSearchParams(location.hash.slice(1)));function tt(s,t){let e=Number(s);return s!==void 0&&s!==""&&Number.isInteger(e)&&e>=0&&
e<t?e:null}function F(s){return`#${Object.entries({...Yt(),...s}).filter(([,e])=>e!==void 0&&e!=="").map(([e,n])=>`${e}=${encodeURIComponent(String(n))}`).join(
"&")}`}function $(s){location.hash=F(s)}function vt(s){history.replaceState(null,"",F(s))}function jt(s){let{site:t,number:e}=b[s],{stack:n,layer:o}=u.sites[t];
return{stack:n||void 0,layer:String(o),head:String(e)}}var A=s=>F({view:void 0,kind:void 0,pick:void 0,second:void 0,...jt(s)}),Qt={view:"heads",layer:void 0,head:void 0,
second:void 0,row:void 0};function pe(s){if(s.layer===void 0||s.head===void 0)return null;let t=b.findIndex(({site:e,number:n})=>{let{layer:o,stack:i}=u.sites[e];
return String(o)===s.layer&&(i||"")===(s.stack||"")&&String(n)===s.head});return t<0?null:t}var Je=s=>s==null||Number.isNaN(s);function O(s,t=L.format.digits){let{missing:e,plain:n}=L.format;if(Je(s))return e;let o=Math.abs(s);return Number.isInteger(s)&&
o<n[1]?String(s):o>=n[1]||o<n[0]?s.toExponential(1).replace("e+","e").replace(".0e","e"):String(Number(s.toPrecision(t)))}function y(s){let{missing:t,fraction_digits:e}=L.
format;return Je(s)?t:s.toFixed(e)}var $t=(s,t=2)=>`${O(100*s,t)} %`;function _t(s){let t=Math.max(0,Math.min(3,Math.floor(Math.log10(Math.max(1,s))/3)));return`${Number(
(s/1e3**t).toPrecision(3))}${[""," k"," M"," G"][t]}`}function E(s,t=24){let e=Array.from(s);return e.length<=t?s:`${e.slice(0,t-1).join("")}…`}var V=s=>s?`${s[0].
toUpperCase()}${s.slice(1)}${/[.!?]$/.test(s)?"":"."}`:"",G=(s,t)=>`${s} ${t}${s===1?"":"s"}`;var _="system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif",Mt=()=>window.devicePixelRatio||1;function Nt(s){let t=s.getContext("2d");if(!t)throw new Error(
"this browser draws no canvas");return t}function N(s,t,e){let n=Mt(),[o,i]=[Math.max(1,Math.round(t*n)),Math.max(1,Math.round(e*n))],r=Nt(s);return s.width===o&&
s.height===i&&s.style.width&&"reset"in r?r.reset():(s.width=o,s.height=i,s.style.width=`${t}px`,s.style.height=`${e}px`),r.setTransform(n,0,0,n,0,0),r}function St(s,t=160){
let e=a("canvas",{class:"bar","aria-hidden":"true"}),n=N(e,t,10);for(let o=0;o<t;o+=1)n.fillStyle=s(o/(t-1)),n.fillRect(o,0,1,10);return e}function Y(s,t,e,n){s.
save(),s.translate(e,n),s.rotate(-Math.PI/2),s.fillText(t,0,0),s.restore()}var H={head:"A head looks at every token of a text and mixes some of them into each token. A layer has several heads, each with its own weights. L3H7 is head 7 \
of layer 3; both are counted from 0.",layer:"A step of the model. Its heads work side by side; the next layer reads what they wrote.",token:"A word or a piece o\
f a word: the unit that the model reads.",parameters:"The numbers that training has set. M is a million.","kv heads":"Heads that have keys and values of their o\
wn. Where several heads share them (grouped-query attention), there are fewer kv heads than heads.","attention map":"One square per pair of tokens. Each row is \
a query, the token that looks; each column is a key, a token that it looks at. The darker the square (on a dark page, the brighter), the larger its weight.",query:"\
The token that looks: a row of the map. Its weights sum to 1.",key:"A token that is looked at: a column of the map.",shading:"Each box is coloured by the larges\
t weight of its head from this token, on a square-root scale like the maps. The text is shaded by the mean over all heads, relative to its largest value.",weight:"\
How much of a key flows into a query, from 0 to 1. The weights of one query sum to 1. The colour shows the square root of the weight, so small weights stay visi\
ble: 0.25 has the colour in the middle of the bar.",kind:"What a head mostly does, such as looking at the previous token. A head has a kind only if its score is\
 significantly above a threshold and above chance, measured over several documents; otherwise it is mixed.",score:"How clearly a head is of its kind, from 0 to \
1: for most kinds, the share of its weight that goes where the kind says. The tick is the threshold, the line the 95 % interval, the open dot the score by chanc\
e.",evidence:"Why the head has its kind, or none: the score, its 95 % interval, the threshold and the score by chance.",importance:"How much worse the model get\
s without this head. The value after ± is half of the 95 % interval; a value below its ± may be zero.","most similar":"The head whose output is closest to tha\
t of this one, by CKA: 0 is unrelated, 1 is the same.","most similar pairs":"The two heads of each line are closest by the measure that is chosen, among the hea\
ds that are shown. Click a pair to see both maps side by side.",CKA:"Centered kernel alignment: how similar the outputs of two heads are, up to a rotation. 0 is\
 unrelated, 1 is the same.","norm-weighted":"Each weight is multiplied by the length of the vector that its key adds to the output, and rows sum to 1 again (Kob\
ayashi et al. 2020). A large weight on a token that adds nothing disappears.","hide delimiters":"Leaves out special tokens such as [CLS] and [SEP]. The weights \
of the others sum to 1 again.",direction:"Where a token looks is its row of the map. Who looks at it is its column.",distance:"How far away the keys are that a \
head looks at, in tokens.",entropy:"How widely a head spreads its weight: 0 if it looks at one token only, larger if it looks at many.",max_weight:"The largest \
weight that a query gives to one key; near 1, the head looks at one token at a time.",first:"The share of the weight on the first token.",special:"The share of \
the weight on special tokens such as [CLS], [SEP] or the end of a text.",previous:"The share of the weight on the token one position back.",next:"The share of t\
he weight on the token one position ahead.",self:"The share of the weight on the token's own position.",same_token:"The share of the weight on other copies of t\
he same token.",induction:"The share of the weight on tokens that followed an earlier copy of the same token.",output_norm:"The length of the vector that the he\
ad writes.",measures:"Values measured over the corpus. The “?” beside each says what it means.",pairs:"The tokens that the head ties together most strongly:\
 from the query to the key.","by distance":"How much weight goes to keys at each distance: back on the left, ahead on the right.",group:"Heads that are more sim\
ilar to each other, on average, than a threshold. One of them may replace the others.",pruning:"Removing heads from the model. The matrices get smaller, so the \
model needs less memory and time. Quality is measured again with the heads removed.","quality lost":"How much worse the model is without the removed heads, as a\
 share: the growth of its perplexity, or the change of its outputs where it has no vocabulary.","can be pruned":"These heads can be removed together, and the mo\
del loses less quality than the limit (the dashed line).",method:"The rule that decides which heads are removed first.","heads kept":"The number of heads that s\
tay in the model, from all of them on the left to none on the right.","attention costs":"Parameters, arithmetic and memory of the attention layers alone, for a \
text as long as stated: counted from the sizes, not measured.","cost: parameters":"The weights of the attention layers.","cost: FLOPs, projections":"Multiplicat\
ions and additions that make queries, keys and values of every token, and mix the heads' outputs.","cost: FLOPs, attention":"Multiplications and additions that \
compare every query with every key and mix the values.","cost: FLOPs, visible pairs only":"The same for pairs that the mask allows: about half of them in a caus\
al model.","cost: scores, if written out":"Memory for the attention maps of all heads if they were stored. Fast kernels never store them.","cost: KV cache":"Mem\
ory for the keys and values of all earlier tokens while a text is generated.","cost: decoding, FLOPs per token":"Multiplications and additions for one new token\
 while a text is generated.","cost: decoding, bytes per token":"Memory that is read for one new token: weights and the KV cache.","cost: FLOPs per byte, all tok\
ens":"Arithmetic per byte of memory traffic when a text is read at once. Above about 100, arithmetic limits the speed; below, memory does.","cost: FLOPs per byt\
e, decoding":"The same for one new token while a text is generated.","cost: crossover, tokens":"The length of text above which comparing tokens costs more than \
the projections.","cost: crossover, visible pairs only":"The same, counting only pairs that the mask allows.","as computed":"The left side of the statement, com\
puted on this model.","as stated":"The right side: the value that the statement predicts.",statement:"A claim about multi-head attention from a paper or a textb\
ook that can be true or false.",verdict:"Holds, fails, or holds only under a condition: both sides were computed on this model."};var it=a("div",{id:"definition",role:"note",hidden:!0}),rt=null;function Wt(){rt?.setAttribute("aria-expanded","false"),rt=null,it.hidden=!0}function Qs(s,t,e){
Wt(),rt=s,s.setAttribute("aria-expanded","true"),it.replaceChildren(a("b",{},t),a("p",{},e)),document.body.append(it),it.hidden=!1;let n=s.getBoundingClientRect(),
{width:o,height:i}=it.getBoundingClientRect(),r=Math.max(8,Math.min(n.left-12,document.documentElement.clientWidth-o-8)),l=n.bottom+6+i<=window.innerHeight||n.top<
i+6;it.style.left=`${r+window.scrollX}px`,it.style.top=`${(l?n.bottom+6:n.top-i-6)+window.scrollY}px`,et(`${t}: ${e}`)}document.addEventListener("pointerdown",s=>{
let t=s.target;rt&&!it.contains(t)&&!rt.contains(t)&&Wt()});window.addEventListener("hashchange",Wt);document.addEventListener("keydown",s=>{s.key!=="Escape"||!rt||
(s.stopPropagation(),rt.focus(),Wt())},{capture:!0});function w(s,t=H[s]){let e=a("button",{type:"button",class:"help","aria-label":`What is ${s}?`,"aria-expand\
ed":"false",onclick:n=>{n.preventDefault(),n.stopPropagation(),rt===e?Wt():Qs(e,s,t)}});return e.textContent="?",e}var z=(s,t=s.toLowerCase())=>a("h3",{},s," ",
w(t));var Xe=s=>Object.hasOwn(u.kind_texts,s)?u.kind_texts[s]:null,K=s=>Xe(s)?.label??s,Jt=s=>Xe(s)?.sentence??"";function Q(s){let t=M(s),e=Object.hasOwn(H,s)?H[s]:s===u.importance?H.importance:"",n=t?`${V(t.meaning)}${t.unit?` Unit: ${t.unit}.`:""}`:"";return w(s,[e,n].filter(
Boolean).join(" "))}function Xt(s){return w(K(s),me(s))}function me(s){let t=Object.hasOwn(u.kinds,s)?u.kinds[s]:null,e=t?`${V(t.meaning)} Its score must be abo\
ve ${t.threshold} and above chance.`:"";return[Jt(s),e].filter(Boolean).join(" ")}var ft=256;function wt(s){let{kinds:t,no_value:e}=L;return Object.hasOwn(t,s)?t[s]:e}var we=s=>L.lines[s%L.lines.length],Js=s=>[1,3,5].map(t=>parseInt(s.slice(t,
t+2),16));function Xs(s){let t=s.map(Js),e=new Uint8Array(3*ft);for(let n=0;n<ft;n+=1){let o=n/(ft-1)*(t.length-1),i=Math.min(t.length-2,Math.floor(o));for(let r=0;r<
3;r+=1)e[3*n+r]=Math.round(t[i][r]+(o-i)*(t[i+1][r]-t[i][r]))}return e}var Ze=new Map;function ts(s){let t=Ze.get(s);return t||(t=Xs(L.ramps[s]),Ze.set(s,t)),t}
var ge=()=>document.documentElement.dataset.theme==="dark"?"weight-dark":"weight";function at(s,t){let e=ts(s),n=3*Math.max(0,Math.min(ft-1,Math.round(t*(ft-1))));return`rgb(${e[n]} ${e[n+1]} ${e[n+2]})`}var fe=new Map,Zt=null;function x(s){let t=fe.
get(s);return t===void 0&&(t=getComputedStyle(document.documentElement).getPropertyValue(s).trim(),fe.set(s,t)),t}function es(){if(!Zt){let s=ts(ge()),t=new Uint8Array(
4*ft).fill(255);for(let e=0;e<ft;e+=1)t.set(s.subarray(3*e,3*e+3),4*e);Zt=new Uint32Array(t.buffer)}return Zt}function ss(){Zt=null,fe.clear()}var lt=62,Tt=40,ns=46,Zs=5,tn={dot:en,square:sn};function en(s,{color:t,size:e=.6,hollow:n},o,i,r){let[l,c]=L.size,h=Math.max(1.2,r/2*(l+(c-l)*e));s.beginPath(),
s.arc(o+r/2,i+r/2,h,0,2*Math.PI),s.lineWidth=Math.max(1,Math.min(2.5,r/12)),s.strokeStyle=s.fillStyle=t,n?s.stroke():s.fill()}function sn(s,{color:t},e,n,o){let i=nn(
o);s.fillStyle=t,s.fillRect(e+i,n+i,o-2*i,o-2*i)}var nn=s=>s>12?1.5:.5;function on(s,t){if(s==="kind"){let r=u.heads.map((c,h)=>ot(h)),[,l]=is(r);return c=>({shape:"\
dot",color:wt(C(c)),size:l>0?Math.sqrt(Math.max(r[c]??0,0)/l):.6,hollow:Z.has(u.heads[c]),faded:t!==void 0&&C(c)!==t})}let e=ue(s),{ramp:n,low:o,high:i}=os(e);return r=>{
let l=e[r];return{shape:"square",color:l===null?x("--line"):at(n,i>o?(l-o)/(i-o):.5)}}}function os(s){let[t,e]=is(s),n=Math.max(-t,e);return t<0&&e>0?{ramp:"sig\
ned",low:-n,high:n}:{ramp:"measure",low:t,high:e}}function is(s){let[t,e]=[1/0,-1/0];for(let n of s)n!==null&&n<t&&(t=n),n!==null&&n>e&&(e=n);return[t,e]}var te=class{constructor(t,e){
this.by=t,this.chosen=e,this.columns=1+Math.max(...b.map(n=>n.number)),this.headAt=new Map(b.map(({site:n,number:o},i)=>[`${n} ${o}`,i])),this.side=ns,this.picked=
0,this.hovered=null,this.canvas=a("canvas",{tabindex:"0",role:"application",class:"grid","aria-label":"Grid of heads, layers down, heads across. Arrow keys move\
, Enter opens the head."}),this.note=a("p",{class:"hover","aria-hidden":"true"}),this.box=a("div",{class:"gridbox"},this.canvas),this.canvas.addEventListener("p\
ointermove",n=>this.hover(this.under(n))),this.canvas.addEventListener("pointerleave",()=>this.hover(null)),this.canvas.addEventListener("click",n=>{let o=this.
under(n);o!==null&&(location.hash=A(o))}),this.canvas.addEventListener("keydown",n=>this.onKey(n)),this.canvas.addEventListener("focus",()=>this.draw()),this.canvas.
addEventListener("blur",()=>this.draw()),this.describe(null)}under(t){let[e,n]=X(t,this.canvas),[o,i]=[Math.floor((n-Tt)/this.side),Math.floor((e-lt)/this.side)];
return this.headAt.get(`${o} ${i}`)??null}hover(t){t!==this.hovered&&(this.hovered=t,this.canvas.style.cursor=t===null?"default":"pointer",this.draw(),this.describe(
t))}describe(t){let e="Point at a head for its numbers; click to open it.";this.note.textContent=t===null?e:ee(t,this.by)}onKey(t){t.key==="Enter"&&(location.hash=
A(this.picked));let e=Gt[t.key];e&&(t.preventDefault(),t.stopPropagation(),this.picked=mt(this.picked,e),this.draw(),this.describe(this.picked),et(ee(this.picked,
this.by)))}draw(){let t=u.sites.length,e=((this.box.clientWidth||600)-lt)/this.columns;this.side=Math.max(Zs,Math.min(ns,e>12?Math.floor(e):e));let[n,o]=[this.side*
this.columns,this.side*t],i=N(this.canvas,lt+n,Tt+o+2);this.drawAxes(i,n,o);let r=on(this.by,this.chosen),l=document.activeElement===this.canvas?this.picked:null;
b.forEach(({site:c,number:h},d)=>{let[p,m]=[lt+h*this.side,Tt+c*this.side],f=r(d);i.globalAlpha=f.faded?.16:1,tn[f.shape](i,f,p,m,this.side),i.globalAlpha=1,!(d!==
this.hovered&&d!==l)&&(i.strokeStyle=x("--ink"),i.lineWidth=1.5,i.strokeRect(p+.75,m+.75,this.side-1.5,this.side-1.5))})}drawAxes(t,e,n){t.font=`600 12px ${_}`,
t.fillStyle=x("--ink"),t.textBaseline="middle",t.textAlign="center",t.fillText("head",lt+Math.min(e,this.box.clientWidth-lt)/2,8),Y(t,"layer",8,Tt+n/2),t.font=`\
11px ${_}`,t.fillStyle=x("--dim");let o=Math.max(1,Math.ceil(18/this.side));for(let r=0;r<this.columns;r+=o)t.fillText(String(r),lt+(r+.5)*this.side,Tt-11);t.textAlign=
"right";let i=u.sites.length>40||this.side<14;u.sites.forEach(({label:r,layer:l},c)=>{if(c%o)return;let h=i?String(l):r.replace(/^(enc|dec)oder\./,"$1.");t.fillText(
h,lt-8,Tt+(c+.5)*this.side)})}};function ee(s,t){let e=[u.heads[s]];if(M("kind")){let i=S("kind_score",s);e.push(`${J(s)}${i===null?"":` ${y(i)}`}`)}u.importance&&
e.push(`importance ${O(ot(s),2)}`);let n=B("most_similar",s);n&&e.push(`most similar ${n} ${y(S("most_similar_cka",s))}`);let o=t==="kind"||t===u.importance?null:
M(t);return t&&o&&e.push(`${t} ${O(S(t,s))}`),Z.has(u.heads[s])&&e.push("can be pruned"),e.join(" · ")}var J=s=>[K(C(s)),B("kind_detail",s)].filter(Boolean).join(
" ");function rs(s,t,e){if(s!=="kind")return rn(s);let n=new Map;u.heads.forEach((h,d)=>n.set(C(d),(n.get(C(d))??0)+1));let o=[...n].sort((h,d)=>d[1]-h[1]).map(
([h,d])=>{let p=a("i",{class:"dot"});p.style.background=wt(h);let m=h===t,f=()=>e(m?void 0:h),v=a("button",{type:"button",class:"key","aria-pressed":String(m),onclick:f});
return v.append(p,K(h),a("small",{},String(d))),a("span",{class:"keyhelp"},v,Xt(h))}),i=u.importance?a("span",{class:"dim"},"Larger: more important ",w("importa\
nce")):null,r=Z.size?a("span",{class:"dim"},"Hollow: can be pruned ",w("can be pruned")):null,l=a("b",{},"Kinds of heads ",w("kind")),c=a("span",{class:"dim"},"\
Click a kind to list its heads.");return a("div",{class:"legend"},l,o,i,r,c)}function rn(s){let{ramp:t,low:e,high:n}=os(ue(s));if(e>n)return a("p",{class:"legen\
d"});let o=St(r=>at(t,r)),i=a("span",{class:"dim"},s," ",Q(s));return a("p",{class:"legend"},O(e),o,O(n),i)}function an({q:s,k:t,dim:e},n,o,i,r){let l=n*e,c=l+e,h=o;for(;h+3<i;h+=4){let[d,p,m,f]=[0,0,0,0];for(let v=l,T=h*e;v<c;v+=1,T+=1){let D=s[v];d+=D*t[T],p+=D*t[T+
e],m+=D*t[T+2*e],f+=D*t[T+3*e]}r[h]=d,r[h+1]=p,r[h+2]=m,r[h+3]=f}for(;h<i;h+=1){let d=0;for(let p=l,m=h*e;p<c;p+=1,m+=1)d+=s[p]*t[m];r[h]=d}}function as(s,t,e){
let{bias:n,softcap:o,sink:i}=s,[r,l,c]=[s.first[t],s.end[t],s.first.length-1-t];e.fill(0),an(s,t,r,l,e);let h=i===void 0?-1/0:i;for(let p=r;p<l;p+=1)o!==void 0&&
(e[p]=o*Math.tanh(e[p]/o)),n&&(e[p]+=n[p+c]),e[p]>h&&(h=e[p]);let d=i===void 0?0:Math.exp(i-h);for(let p=r;p<l;p+=1)e[p]=Math.exp(e[p]-h),d+=e[p];for(let p=r;p<
l;p+=1)e[p]/=d;return e}var ln=40,cn=()=>new Promise(s=>setTimeout(s)),ls=s=>255*Math.sqrt(s)+.5,gt=class s{constructor(t,e,n){this.name=t,this.queries=n.queries,this.keys=n.keys,this.
rows=e.sequences[n.rows],this.columns=e.sequences[n.columns],this.square=n.rows===n.columns,this.coded=null,this.qk=null,this.norms=null,this.completing=null}static async read(t,e,n,o,i){
let r=new s(t,e,n);return o.map!==void 0?r.coded=await ut(o.map):r.qk=await hn(o),n.norms!==null&&(r.norms=st(await ut(n.norms)).subarray(i*n.keys,(i+1)*n.keys)),
r}complete(){return this.completing??=this.computeAll(),this.completing}async computeAll(){if(this.coded)return;let t=new Uint8Array(this.queries*this.keys),e=performance.
now();for(let n=0;n<this.queries;n+=1){let o=this.row(n);for(let i=0,r=n*this.keys;i<this.keys;i+=1)t[r+i]=ls(o[i]);performance.now()-e>ln&&(await cn(),e=performance.
now())}this.coded=t}get bytes(){return(this.coded?.length??0)+(this.qk?4*(this.qk.q.length+this.qk.k.length):0)}row(t){let e=new Float32Array(this.keys);if(this.
qk)return as(this.qk,t,e);if(this.coded)for(let n=0;n<this.keys;n+=1)e[n]=(this.coded[t*this.keys+n]/255)**2;return e}column(t){let e=new Float32Array(this.queries),
n=this.coded;if(n)for(let o=0;o<this.queries;o+=1)e[o]=(n[o*this.keys+t]/255)**2;return e}weights(t,e){return t?this.row(e):this.column(e)}async preview(t){if(this.
coded)return{coded:this.coded,queries:this.queries,keys:this.keys};let e=Math.min(t,this.queries),n=new Uint8Array(e*this.keys);for(let o=0;o<e;o+=1){let i=this.
row(Math.floor((o+.5)*this.queries/e));for(let r=0;r<this.keys;r+=1)n[o*this.keys+r]=ls(i[r])}return{coded:n,queries:e,keys:this.keys}}reweighted(t,e){let n=t?this.
norms:null,o=e&&this.columns.special.some(Boolean);if(!n&&!o)return this;let i=new Float32Array(this.keys).fill(1);for(let l=0;l<this.keys;l+=1)n&&(i[l]=n[l]),o&&
this.columns.special[l]&&(i[l]=0);let r=Object.create(this);return r.row=l=>dn(this.row(l),i),this.coded&&(r.coded=un(this.coded,this.queries,this.keys,i)),r}};
async function hn(s){let{q:t,k:e,first:n,end:o,dim:i}=s,r=await Promise.all([t,e,n,o].map(ut)),l=s.wide?st:ze;return{q:l(r[0]),k:l(r[1]),first:de(r[2]),end:de(r[3]),
dim:i,bias:s.bias===void 0?null:st(await ut(s.bias)),softcap:s.softcap,sink:s.sink}}function dn(s,t){let e=0;for(let n=0;n<s.length;n+=1)s[n]*=t[n],e+=s[n];if(e>
0)for(let n=0;n<s.length;n+=1)s[n]/=e;return s}function un(s,t,e,n){let o=new Uint8Array(s.length);for(let i=0;i<t;i+=1){let r=i*e,l=0;for(let c=0;c<e;c+=1)l+=s[r+
c]**2*n[c];if(l!==0)for(let c=0;c<e;c+=1)o[r+c]=Math.round(s[r+c]*Math.sqrt(n[c]/l*255*255))}return o}function ke(s){q("trouble").textContent=s,q("trouble").hidden=!s}async function ye(s,t,e){let n=Object.entries(t).map(([i,r])=>[i,String(r)]),o;try{o=await fetch(
`${s}?${new URLSearchParams(n)}`,{signal:e,cache:"no-store"})}catch(i){throw be(i)||ke("The server does not answer. Is multihead serve still running?"),i}if(!o.
ok){let i=await o.text();throw ke(i),new Error(i)}return ke(""),o}async function kt(s,t,e){let n=await ye(s,t,e);return new Uint8Array(await n.arrayBuffer())}var be=s=>s instanceof
DOMException&&s.name==="AbortError";async function cs(s){let e=await fetch("text",{method:"POST",body:s,headers:{"Content-Type":"text/plain"}});if(!e.ok)throw new Error(
await e.text());return e.json()}var hs=4096,pn=256,mn=120,I=class s extends gt{constructor(t,e,n,o){super(t,e,n),this.where=o,this.lines=new Map,this.overview=null,this.latest=null,this.asking=
null,this.controller=null,this.timer=0,this.variants=new Map,this.source=[t,e,n]}complete(){return Promise.resolve()}get bytes(){return 4*this.keys*this.lines.size+
2e6}reweighted(t,e){if(!t&&!e)return this;let n=`${t} ${e}`,o=this.variants.get(n);if(!o){let i={...this.where,...t?{norm:1}:{},...e?{hide:1}:{}};o=new s(...this.
source,i),this.variants.set(n,o)}return o}weights(t,e){return this.lines.get(`${t?"row":"column"} ${e}`)??null}async fetchWeights(t,e){let n=this.weights(t,e);if(n)
return n;let o=t?"row":"column",i=st(await kt(o,{...this.where,i:e}));return this.lines.size>=pn&&this.lines.delete(this.lines.keys().next().value??""),this.lines.
set(`${o} ${e}`,i),i}picture(t,e,n,o){let[i,r]=[Math.floor(t.x),Math.floor(t.y)],l=Math.min(this.keys,Math.ceil(t.x+t.w-1e-9))-i,c=Math.min(this.queries,Math.ceil(
t.y+t.h-1e-9))-r,h={width:Math.min(l,e,hs),height:Math.min(c,n,hs)},d={x:i,y:r,w:l,h:c,...h},p=Object.values(d).join(" ");return this.latest?.key===p?this.latest:
this.overview?.key===p?this.overview:(this.asking!==p&&(this.cancel(),this.asking=p,this.timer=window.setTimeout(()=>this.fetchPicture(d,p,o),this.overview?mn:0)),
this.overview)}async fetchPicture(t,e,n){this.controller=new AbortController;try{let o=await kt("map",{...this.where,...t},this.controller.signal);this.latest={
key:e,part:t,coded:o,keys:t.width,queries:t.height},t.w===this.keys&&t.h===this.queries&&(this.overview=this.latest),this.asking=null,n()}catch(o){this.asking===
e&&(this.asking=null),be(o)||et(String(o))}}cancel(){clearTimeout(this.timer),this.controller?.abort(),this.asking=null}async preview(t){let[e,n]=[Math.min(t,this.
keys),Math.min(t,this.queries)],o={x:0,y:0,w:this.keys,h:this.queries,width:e,height:n,thin:1};return{coded:await kt("map",{...this.where,...o}),keys:e,queries:n}}};
function ds({part:s,keys:t,queries:e},n){let[o,i]=[t/s.w,e/s.h];return{x:(n.x-s.x)*o,y:(n.y-s.y)*i,w:n.w*o,h:n.h*i}}var us=new Map;async function se(s){let t=us.get(s.name);t||(t=ut(s.line),us.set(s.name,t));let e=await t,n=u.pairs?.heads.length??0;return(o,i)=>{let r=e[o*n+i];
return r===255?NaN:s.low+r/254*(1-s.low)}}var ps={cka:"CKA",attention:"attention distance",write:"write overlap",read:"read overlap"},ct=({name:s})=>Object.hasOwn(
ps,s)?ps[s]:s,ms={correlation:"Do two heads write the same vectors?",cka:"Do two heads write the same, up to a rotation?",attention:"Do two heads look at the sa\
me tokens?",write:"Do two heads write into the same directions, by their weights?",read:"Do two heads read from the same directions, by their weights?"},xe=({name:s})=>Object.
hasOwn(ms,s)?ms[s]:s,ne=s=>`${xe(s)} ${V(s.meaning)}`,Ft=s=>s.name==="attention";function fs(s,t,e,n){let o=Ft(s)?1:-1,i=[];return e.forEach((r,l)=>{for(let c of e.
slice(l+1)){let h=t(r,c);Number.isNaN(h)||i.push(r<c?[r,c,h]:[c,r,h])}}),i.sort((r,l)=>o*(r[2]-l[2])||r[0]-l[0]||r[1]-l[1]).slice(0,n)}var ws={stack:void 0,layer:void 0,head:void 0,row:void 0,second:void 0},fn=4,ve=7,Ht=class{constructor(t,e=!1){this.pairs=a("ol");let n=a("section",{class:"pair\
s"},z("Strongest pairs in this text","pairs"),this.pairs),o=`Numbers of ${u.heads[t]}`,i=[wn(t),bn(t),vn(t),Sn(t),$n(t)],r=u.texts.length?n:null;this.element=a(
"aside",{class:"panel","aria-label":o},i,r,An(t,e))}async showPairs(t){let e;if(t instanceof I){let r=await ye("pairs",t.where).catch(()=>null);if(!r)return;e=await r.
json()}else e=Mn(t);let[n,o]=[t.rows.shown,t.columns.shown],i=e.map(([r,l,c])=>gs(n[l],o[c],y(r)));this.pairs.replaceChildren(...i)}};function wn(s){if(!M("kind"))
return null;let t=C(s),e=u.why?.[u.heads[s]],n=Object.keys(u.kinds).map(l=>({name:l,score:S(`kind:${l}`,s)})).sort((l,c)=>+(c.name===t)-+(l.name===t)||(c.score??
0)-(l.score??0)),o=n.slice(0,fn).map(({name:l,score:c})=>c===null?null:yn(s,l,c,l===t)),i=e?`${H.evidence} Here: ${e}.`:H.evidence,r=a("p",{class:"dim"},"Bars a\
re scores, ticks are thresholds. ",w("score"));return a("section",{},z("Kind"),a("p",{},a("b",{},J(s))),a("p",{class:"dim"},`${gn(s,n)} `,w("evidence",i)),a("di\
v",{class:"scores"},o,r),kn(s))}function gn(s,t){let e=t.find(({score:r})=>r!==null);if(!e)return"No kind could be measured.";let{threshold:n}=u.kinds[e.name],o=y(
e.score);if(e.name!==C(s))return`${`Closest: ${K(e.name)}, with a score of ${o}.`} Its 95 % interval would have to be above ${n} and above chance.`;let i=y(S("\
kind_control",s));return`Its score is ${o}: clearly above the threshold (${n}) and above chance (${i}).`}function kn(s){let t={position:"positions, not words",content:"\
words, not positions",mixed:"positions and words"},e=B("driven",s);if(!Object.hasOwn(t,e))return null;let n=S("driven_score",s),o=`Tokens were shuffled. The val\
ue is the overlap of the maps at the same positions, minus the overlap at the same words: ${n!==null&&n>0?"+":""}${y(n)}.`;return a("p",{class:"dim"},`Follows ${t[e]}\
 `,w("follows",o))}function yn(s,t,e,n){let{threshold:o}=u.kinds[t],i=n?S("kind_control",s):null,[r,l]=n?[S("kind_low",s),S("kind_high",s)]:[null,null],c=m=>`${(100*
Math.max(0,Math.min(1,m))).toFixed(1)}%`,h=`${K(t)} ${y(e)}, threshold ${o}`,d=W("svg",{class:"score",role:"img","aria-label":h});d.append(W("rect",{x:0,y:5,width:"\
100%",height:6,class:"track",rx:3}),W("rect",{x:0,y:5,width:c(e),height:6,rx:3,fill:wt(t)}),W("rect",{x:c(o),y:1,width:1.5,height:14,class:"tick"})),r!==null&&l!==
null&&d.append(W("line",{x1:c(r),x2:c(l),y1:8,y2:8,class:"ends"})),i!==null&&d.append(W("circle",{cx:c(i),cy:8,r:3,class:"chance"}));let p=a("span",{},K(t)," ",
Xt(t));return a("div",{class:"scoreline"},p,d,a("span",{class:"value"},y(e)))}function bn(s){if(!u.importance)return null;let t=S("rank",s),e=Kt(s),n=e===null?"":
` ± ${O(e,1)}`,o=t===null?"":`, rank ${t} of ${u.heads.length}`,i=`${V(M(u.importance)?.meaning??"")} ${V(u.corpus.loss??"")}`.trim();return a("section",{},z("\
Importance"),a("p",{},a("b",{},O(ot(s),2)),`${n}${o}.`),xn(s),a("p",{class:"dim"},`${H.importance.split(".")[0]}. `,w("how importance is measured",i)))}function xn(s){
if(!u.curve||!Z.has(u.heads[s]))return null;let e=`Can be pruned${Z.size>1?`, together with ${Z.size-1} others,`:""} for less than ${$t(u.curve.limit)} of quali\
ty. `;return a("p",{},e,a("a",{href:F({...ws,view:"pruning"})},"Show pruning →"))}function vn(s){let t=B("most_similar",s),e=P.get(t);if(e===void 0)return null;
let n=`, CKA similarity ${y(S("most_similar_cka",s))} `,o=F({...ws,view:"similarity",pick:u.heads[s]});return a("section",{},z("Most similar","most similar"),a(
"p",{},a("a",{href:A(e)},t),n,w("CKA")),a("p",{},a("a",{href:F({second:t})},"Show side by side →")),a("p",{},a("a",{href:o},"Show all pairs →")))}function $n(s){
let t=u.often?.[u.heads[s]];if(!t?.length)return null;let e="For every token, the other token with the largest weight, special tokens excluded: mean weight × nu\
mber of times. The pairs with the most weight in total come first.",n=t.map(([i,r,l,c])=>gs(i,r,`${y(c)} × ${l}`)),o=a("h3",{},"Strongest pairs over the corpus\
 ",w("pairs",e));return a("section",{class:"pairs often"},o,a("ol",{},n))}function gs(s,t,e){let n=o=>a("span",{class:"word"},E(o,14));return a("li",{},n(s)," →\
 ",n(t),a("span",{class:"value"},e))}function Mn({coded:s,keys:t,queries:e,square:n,rows:o,columns:i}){let r=[],l=-1;for(let c=0;s&&c<e;c+=1)if(!o.special[c])for(let h=0,
d=c*t;h<t;h+=1)s[d+h]<=l||i.special[h]||n&&c===h||(r.push([s[d+h],c,h]),r.sort((p,m)=>m[0]-p[0]),r.length>ve&&r.pop(),r.length===ve&&(l=r[ve-1][0]));return r.map(
([c,h,d])=>[(c/255)**2,h,d])}function Sn(s){let t=[];for(let h=-64;h<=64;h+=1){let d=S(`offset${h<0?h:`+${h}`}`,s);d!==null&&t.push([h,d])}if(t.length<3)return null;
let e=Math.max(...t.map(([,h])=>h),1e-9),n=100/t.length,i=W("svg",{class:"offsets",role:"img","aria-label":"mean weight by distance",...{viewBox:"0 0 100 40",preserveAspectRatio:"\
none"}});t.forEach(([h,d],p)=>{let m=d/e*38,[f,v]=[(p*n+n*.12).toFixed(2),(40-m).toFixed(2)],T={width:(n*.76).toFixed(2),height:m.toFixed(2)},D=W("rect",{x:f,y:v,
...T,class:h===0?"zero":""});D.append(W("title",{},`${h>0?"+":""}${h}: ${y(d)}`)),i.append(D)});let[r,l]=[t[0][0],t[t.length-1][0]],c=[`${-r} back`,"itself",`${l}\
 ahead`].map(h=>a("span",{},h));return a("section",{},z("Where it looks, by distance","by distance"),i,a("p",{class:"ends dim"},c),a("p",{class:"dim"},`Highest \
bar: ${y(e)} of the weight, mean over the corpus.`))}var Tn=/^(offset[+-]|kind|most_similar|second|third|order$|cluster$|driven)/;function An(s,t){let e=Object.
keys(u.table??{}).filter(c=>!Tn.test(c));if(!e.length)return null;let n=a("tbody"),o=()=>{if(!(!l.open||n.firstChild))for(let c of e){let h=pt(c,s),d=typeof h==
"string"?h:O(h),p=h===null?Ge(c,s):"",m=a("td",{},d,p?w(`missing: ${c}`,V(p)):null),f=a("th",{scope:"row"},c," ",Q(c));n.append(a("tr",{},f,m,a("td",{class:"dim"},
M(c)?.unit)))}},i=a("table",{class:"measures"},n),r=a("summary",{},`All ${e.length} measures`),l=a("details",{open:t,ontoggle:o},r,i);return l}var On=["kind_sco\
re","entropy","max_weight","distance","first","special","previous","output_norm"];function ks(s,t){let n=[u.importance,...On].filter(c=>c!==null&&M(c)!==null).map(
c=>{let h=a("th",{scope:"row"},c," ",Q(String(c)));return a("tr",{},h,[s,t].map(d=>a("td",{},O(S(c,d)))))}),o=M("kind")?a("tr",{},a("th",{scope:"row"},"kind ",w(
"kind")),[s,t].map(c=>a("td",{},Ye(c)))):null,i=[s,t].map(c=>a("th",{scope:"col"},u.heads[c])),r=a("thead",{},a("tr",{},a("td"),i)),l=a("table",{class:"measures"},
r,a("tbody",{},o,n));return a("div",{class:"pair"},z("Both heads in numbers","measures"),l)}function ys(s,t){let e=a("span",{class:"alikeness"}),{pairs:n}=u;if(!n)
return e;let[o,i]=[s,t].map(r=>n.heads.indexOf(u.heads[r]));return Promise.all(n.measures.map(se)).then(r=>{e.append("Similarity: "),r.forEach((l,c)=>{let h=n.measures[c],
d=`${c?", ":""}${ct(h)} ${y(l(o,i))} `;e.append(d,w(ct(h),ne(h)))})}),e}var Ln=150;function Cn(s){let t=[{key:"head",title:"Head",help:w("head"),value:e=>e,show:e=>u.heads[e]}];if(M("kind")){let e=i=>J(i)||null;t.push({key:"kind",title:"\
Kind",help:w("kind"),value:e,show:$e,words:!0});let n=i=>S("kind_score",i),o=i=>y(n(i));t.push({key:"score",title:"Score",help:w("score"),value:n,show:o})}if(u.
importance){let e=Q(u.importance);t.push({key:"importance",title:"Importance",help:e,value:ot,show:En})}if(M("most_similar")){let e=i=>S("most_similar_cka",i),[
n,o]=["most_similar","Most similar"];t.push({key:n,title:o,help:w("most similar"),value:e,show:qn,words:!0})}if(s!=="kind"&&s!==u.importance&&M(s)){let e=o=>pt(
s,o),n=o=>{let i=e(o);return typeof i=="string"?i:O(i)};t.push({key:s,title:s,help:Q(s),value:e,show:n})}return t}function $e(s){let t=a("i",{class:"dot","aria-\
hidden":"true"});return t.style.background=C(s)?wt(C(s)):"transparent",[t,J(s)||O(null)]}function En(s){let t=Kt(s),e=t===null?null:a("small",{},` ± ${O(t,1)}`);
return[O(ot(s),2),e]}function qn(s){let t=B("most_similar",s);return t?[`${t} `,a("small",{},y(S("most_similar_cka",s)))]:O(null)}function In(s,t,e){return[...s].
sort((n,o)=>{let[i,r]=[t.value(n),t.value(o)];if(i===null||r===null)return+(i===null)-+(r===null)||n-o;let l=i<r?-1:i>r?1:0;return(e?-l:l)||n-o})}function bs(s,t,e){
let n=Cn(e),o=R=>n.find(g=>g.key===R),i=o(s.sort)??o("importance")??n[0],r=i.key==="head"||i.key==="kind",l=(s.down??(r?"0":"1"))==="1",c=In(t,i,l),h=n.map(R=>{
let g=R===i,j=()=>$({sort:R.key,down:g?l?"0":"1":void 0}),xt=g?l?" ↓":" ↑":"",he=g?l?"descending":"ascending":"none",It=a("button",{type:"button",onclick:j},
R.title+xt);return a("th",{scope:"col",class:R.words?"words":"","aria-sort":he},It,R.help)}),d=a("tbody"),p=a("button",{type:"button",class:"more"}),m=()=>{let R=d.
rows.length;d.append(...c.slice(R,R+Ln).map(g=>Rn(g,n))),p.hidden=d.rows.length>=c.length,p.textContent=`Show more of ${c.length} heads`};p.addEventListener("cl\
ick",m),m();let f=a("caption",{class:"quiet"},"All heads"),v=a("table",{class:"heads"},f,a("thead",{},a("tr",{},h)),d),T={class:"scroll",tabindex:"0",role:"regi\
on","aria-label":"Table of heads"},D=a("button",{type:"button",onclick:_n},"Download CSV");return a("div",{class:"table"},a("div",T,v,p),a("p",{class:"tail"},D))}
function Rn(s,t){let e=t.map(({show:n,words:o},i)=>i===0?a("th",{scope:"row"},a("a",{href:A(s)},n(s))):a("td",{class:o?"words":""},n(s)));return a("tr",{"data-h\
ead":u.heads[s]},e)}var Pn=/^[=+\-@\t\r]/;function jn(s){return s===null?"":typeof s=="number"?String(s):`"${(Pn.test(s)?`'${s}`:s).replaceAll('"','""')}"`}function _n(){
let s=Object.keys(u.table??{}),t=u.heads.map((n,o)=>{let{site:i,number:r}=b[o];return[n,u.sites[i].layer,r,...s.map(l=>pt(l,o))]}),e=[["head","layer","number",...s],
...t].map(n=>`${n.map(jn).join(",")}\r
`);Ut(new Blob(e,{type:"text/csv"}),"heads.csv")}function xs(s,t,e,n){let o=new Int32Array(n+1);for(let i=0;i<=n;i+=1)o[i]=Math.min(e,Math.floor(s+i/n*t+1e-9));return o}function Me({coded:s,keys:t,queries:e},n,o,i){
let r=es(),l=new ImageData(o,i),c=new Uint32Array(l.data.buffer),h=xs(n.x,n.w,t,o),d=xs(n.y,n.h,e,i),p=new Uint8Array(o),m=-1;for(let f=0;f<i;f+=1){let[v,T]=[d[f],
Math.max(d[f]+1,d[f+1])],D=v===m&&T===v+1,R=f*o;if(D){c.copyWithin(R,R-o,R);continue}p.fill(0);for(let g=v;g<T&&g<e;g+=1)for(let j=0,xt=g*t;j<o;j+=1){let he=Math.
min(t,Math.max(h[j]+1,h[j+1])),It=p[j];for(let Bt=h[j];Bt<he;Bt+=1)s[xt+Bt]>It&&(It=s[xt+Bt]);p[j]=It}m=T===v+1?v:-1;for(let g=0;g<o;g+=1)c[R+g]=r[p[g]]}return l}
async function vs(s,t){let e=a("canvas",{class:"thumb","aria-hidden":"true"});N(e,t,t);let n=Math.round(t*Mt()),o=await s.preview(n),i={x:0,y:0,w:o.keys,h:o.queries};
return Nt(e).putImageData(Me(o,i,n,n),0,0),e}var Se=s=>s.reduce((t,e)=>e>t?e:t,0),Dt=56;function $s(s,t,{left:e,width:n,window:o}){let i=N(s,e+n,Dt),r=Math.max(
1e-9,Se(t)),l=n/o.w;i.fillStyle=x("--dim"),i.font=`11px ${_}`,i.textAlign="right",i.textBaseline="top",i.fillText(y(r),e-6,2),i.textBaseline="bottom",i.fillText(
"0",e-6,Dt-2),i.fillStyle=x("--line"),i.fillRect(e,Dt-1,n,1),i.fillStyle=x("--accent");let c=Math.min(t.length,o.x+o.w);for(let h=Math.floor(o.x);h<c;h+=1){let d=t[h]/
r*(Dt-8),p=e+(h-o.x)*l;p+l<=e||d<=.2||i.fillRect(Math.max(e,p),Dt-1-d,Math.max(1,l-(l>4?1:0)),d)}}var Nn=96e6,Wn=2048,At=new Map,Te=new Map;async function yt(s,t){let e=`${s} ${t}`,n=At.get(e);if(n)return Ae(e,n),n;let o=b[t],i=o&&u.texts[s]?.layers[o.site],
r=i?.heads[o.head];if(!i||!r)return null;let l=Te.get(e);l||(l=r.served?Fn(s,t):gt.read(u.heads[t],u.texts[s],i,r,o.head),Te.set(e,l));try{let c=await l;return Ae(
e,c),c}finally{Te.delete(e)}}async function bt(s,t){let e=await yt(s,t);return e&&!e.coded&&(await e.complete(),Ae(`${s} ${t}`,e)),e}function Ae(s,t){At.delete(
s),At.set(s,t);let e=0;for(let n of At.values())e+=n.bytes;for(let[n,o]of At){if(e<=Nn||n===s)break;At.delete(n),e-=o.bytes}}async function Fn(s,t){let e=u.texts[s],
n=b[t],o=e.layers[n.site],i={text:s,layer:o.label,head:n.head},{queries:r,keys:l}=o;if(Math.max(r,l)>Wn)return new I(u.heads[t],e,o,i);let c=new gt(u.heads[t],e,
o),h={x:0,y:0,w:l,h:r,width:l,height:r},[d,p]=await Promise.all([kt("map",{...i,...h}),kt("norms",i)]);return c.coded=d,c.norms=st(p),c}async function Ot(s,t,e){
return s instanceof I?s.fetchWeights(t,e):t?s.row(e):(await s.complete(),s.column(e))}var Hn=84,oe=class{constructor(t,e){this.text=e,this.site=-1,this.slots=[],this.element=a("section",{class:"strip"}),this.show(t)}show(t){b[t].site!==this.site&&
this.fill(b[t].site);for(let{head:e,slot:n}of this.slots)n.href=A(e),n.className=e===t?"slot on":"slot"}fill(t){this.site=t;let{label:e,heads:n}=u.sites[t];this.
slots=Array.from({length:n},(i,r)=>{let l=nt[t]+r,c=a("span",{class:"hole"}),h=u.heads[l],d=a("a",{"aria-label":`${h} ${J(l)}`},c,a("span",{class:"name"},h));return{
head:l,slot:d,picture:c}}),this.element.setAttribute("aria-label",`Heads of ${e}`);let o=a("div",{class:"slots"},this.slots.map(({slot:i})=>i));this.element.replaceChildren(
a("h3",{},`All heads of ${e}`),o),this.drawAll()}async drawAll(){let{slots:t}=this;if(u.texts.length)for(let{head:e,slot:n,picture:o}of t){if(await zt(),t!==this.
slots||n!==t[0].slot&&!n.isConnected)return;let i=await yt(this.text,e).catch(()=>null);i&&o.replaceChildren(await vs(i,Hn).catch(()=>""))}}};var k=104,Dn=22,Ms=11,Bn=720,Ss=4,ie=class{constructor({point:t,pick:e,drawn:n}){this.point=t,this.pick=e,this.drawn=n,this.map=null,this.window={x:0,y:0,w:1,h:1},
this.mark={row:null,column:null},this.width=0,this.height=0,this.room=0,this.dragged=!1,this.painted=null,this.pointers=new Map,this.canvas=a("canvas",{class:"m\
ap",role:"img",tabindex:"-1"}),this.box=a("div",{class:"mapbox"},this.canvas),this.canvas.addEventListener("wheel",o=>this.onWheel(o),{passive:!1}),this.canvas.
addEventListener("pointerdown",o=>this.onDown(o)),this.canvas.addEventListener("pointermove",o=>this.onMove(o)),this.canvas.addEventListener("pointerup",o=>this.
onUp(o)),this.canvas.addEventListener("pointercancel",o=>this.pointers.delete(o.pointerId)),this.canvas.addEventListener("pointerleave",()=>this.point(null)),this.
canvas.addEventListener("dblclick",()=>this.showAll())}get place(){return{left:k,width:this.width,window:this.window}}show(t){let e=this.map&&this.map.queries===
t.queries&&this.map.keys===t.keys;this.map=t,e||(this.window={x:0,y:0,w:t.keys,h:t.queries});let n=`${t.queries} queries down, ${t.keys} keys across`,o=`Attenti\
on map of ${t.name}: ${n}. The text below has the same weights.`;this.canvas.setAttribute("aria-label",o)}clear(){N(this.canvas,this.canvas.clientWidth,this.canvas.
clientHeight)}showAll(){this.map&&(this.window={x:0,y:0,w:this.map.keys,h:this.map.queries},this.draw())}zoom(t,e=this.width/2,n=this.height/2){let{map:o,window:i}=this;
if(!o)return;let[r,l]=[i.x+e/this.width*i.w,i.y+n/this.height*i.h],c=Math.max(Math.min(Ss,o.keys),Math.min(o.keys,i.w/t)),h=Math.max(Math.min(Ss,o.queries),Math.
min(o.queries,i.h/t));this.window={w:c,h,x:r-e/this.width*c,y:l-n/this.height*h},this.draw()}clampWindow(){let{map:t,window:e}=this;t&&(e.x=Math.max(0,Math.min(
t.keys-e.w,e.x)),e.y=Math.max(0,Math.min(t.queries-e.h,e.y)))}onWheel(t){if(t.deltaY>0&&this.window.w>=(this.map?.keys??0)&&!t.ctrlKey&&!t.metaKey)return;t.preventDefault();
let[n,o]=X(t,this.canvas);this.zoom(Math.exp(-t.deltaY/300),n-k,o-k)}onDown(t){this.canvas.setPointerCapture(t.pointerId),this.pointers.set(t.pointerId,X(t,this.
canvas)),this.dragged=!1}onMove(t){let e=X(t,this.canvas),n=this.pointers.get(t.pointerId);if(!n){this.point(this.cellAt(e));return}let o=[...this.pointers].find(
([i])=>i!==t.pointerId)?.[1];if(o){let i=c=>Math.hypot(c[0]-o[0],c[1]-o[1]),[r,l]=[(e[0]+o[0])/2-k,(e[1]+o[1])/2-k];this.dragged=!0,this.zoom(i(e)/Math.max(1,i(
n)),r,l)}else if(this.dragged||Math.hypot(e[0]-n[0],e[1]-n[1])>4)this.dragged=!0,this.window.x-=(e[0]-n[0])/this.width*this.window.w,this.window.y-=(e[1]-n[1])/
this.height*this.window.h,this.draw();else return;this.pointers.set(t.pointerId,e)}onUp(t){if(this.pointers.delete(t.pointerId),this.dragged)return;let e=this.cellAt(
X(t,this.canvas));e&&this.pick(e)}cellAt([t,e]){let{map:n,window:o}=this;if(!n||t<k||e<k)return null;let i=Math.floor(o.x+(t-k)/this.width*o.w),r=Math.floor(o.y+
(e-k)/this.height*o.h);return r>=0&&i>=0&&r<n.queries&&i<n.keys?[r,i]:null}observeWidth(){this.room=this.box.clientWidth,new ResizeObserver(()=>{let t=this.box.
clientWidth;t!==this.room&&(this.room=t,this.draw())}).observe(this.box)}draw(){let{map:t}=this;if(!t)return;this.clampWindow(),this.room||this.observeWidth(),this.
width=Math.max(80,Math.min(this.room||560,Bn)-k),this.height=Math.max(80,Math.min(1.6*this.width,this.width*t.queries/t.keys));let e=N(this.canvas,this.width+k,
this.height+k),n=Math.round(k*Mt()),o=this.paint(t);this.canvas.toggleAttribute("data-waiting",t instanceof I&&t.asking!==null),o&&e.putImageData(o,n,n),this.drawFrame(
e,t),this.drawMarks(e),this.drawn()}paint(t){let e=Mt(),[n,o]=[Math.round(this.width*e),Math.round(this.height*e)],i=()=>this.box.isConnected&&this.draw(),r=t instanceof
I?t.picture(this.window,n,o,i):null,l=t.coded??r?.coded;if(!l)return null;let c=[...Object.values(this.window),n,o].join(" ");if(this.painted?.key!==c||this.painted.
from!==l){let h=r??{coded:l,keys:t.keys,queries:t.queries},d=r?ds(r,this.window):this.window;this.painted={key:c,from:l,image:Me(h,d,n,o)}}return this.painted.image}drawFrame(t,e){
let{window:n,width:o,height:i}=this,[r,l]=[o/n.w,i/n.h];t.strokeStyle=x("--line"),t.strokeRect(k-.5,k-.5,o+1,i+1),t.font=`600 12px ${_}`,t.fillStyle=x("--ink"),
t.textBaseline="middle",t.textAlign="center",t.fillText(o<180?"key":"key: the token looked at",k+o/2,8),Y(t,i<180?"query":"query: the token that looks",8,k+i/2),
t.textAlign="right";let c=(p,m,f)=>(t.fillStyle=x(f?"--ink":m?"--faint":"--dim"),t.font=`${f?"600 ":""}11px ${_}`,zn(t,p,k-Dn-8)),h=Math.max(1,Math.ceil(Ms/l));
for(let p=Math.ceil(n.y/h-1e-9)*h;p<Math.min(e.queries,n.y+n.h);p+=h){let m=k+(p+.5-n.y)*l;m<k+2||m>k+i-2||t.fillText(c(e.rows.shown[p],e.rows.special[p],p===this.
mark.row),k-6,m)}t.textAlign="left";let d=Math.max(1,Math.ceil(Ms/r));for(let p=Math.ceil(n.x/d-1e-9)*d;p<Math.min(e.keys,n.x+n.w);p+=d){let m=k+(p+.5-n.x)*r;if(m<
k+2||m>k+o-2)continue;let f=c(e.columns.shown[p],e.columns.special[p],p===this.mark.column);Y(t,f,m,k-6)}}drawMarks(t){let{window:e,width:n,height:o}=this,{row:i,
column:r}=this.mark,[l,c]=[n/e.w,o/e.h];t.save(),t.beginPath(),t.rect(k,k,n,o),t.clip(),t.strokeStyle=x("--mark"),t.lineWidth=1.5,i!==null&&t.strokeRect(k-2,k+(i-
e.y)*c,n+4,Math.max(2,c)),r!==null&&t.strokeRect(k+(r-e.x)*l,k-2,Math.max(2,l),o+4),t.restore()}savePng(){let{map:t}=this;if(!t)return;let e=a("canvas",{width:this.
canvas.width,height:this.canvas.height}),n=Nt(e);n.fillStyle=x("--paper"),n.fillRect(0,0,e.width,e.height),n.drawImage(this.canvas,0,0),e.toBlob(o=>o&&Ut(o,`${t.
name}.png`))}};function zn(s,t,e){let n=E(t,18);for(;n.length>2&&s.measureText(n).width>e;)n=`${Array.from(n).slice(0,-2).join("")}…`;return n}function re(s){let t=tt(s.text,u.texts.length)??-1;return u.texts[t]?t:u.texts.findIndex(Boolean)}function ae(s){let{texts:t}=u;if(!t.length)return[];let{source:e}=t[s],
n=new Map,o=[];t.forEach((l,c)=>{n.has(l.source)||n.set(l.source,c),l.source===e&&o.push([String(c),`${l.window[0]+1} of ${l.window[1]}`])});let i=l=>$({text:l,
row:void 0}),r=[];if(n.size>1){let l=[...n.values()].map(c=>[String(c),t[c].name]);r.push(U("Text",l,String(n.get(e)),i))}return o.length>1&&r.push(U("Window",o,
String(s),i)),[...r,Oe()]}function Oe(s={}){if(!u.served)return null;let e=a("textarea",{rows:"5","aria-label":"Your text",placeholder:"Type or paste a text"}),
n=a("button",{type:"button",class:"primary"},"Show this text"),o=a("span",{class:"dim",role:"status"});return n.addEventListener("click",async()=>{if(!e.value.trim()){
o.textContent="Type a text first.",e.focus();return}n.disabled=!0,o.textContent="The model is reading it …";try{let{texts:i,first:r}=await cs(e.value);i.forEach(
(l,c)=>u.texts[r+c]=l),$({...s,text:String(r),row:void 0})}catch(i){o.textContent=i instanceof Error?i.message:String(i)}n.disabled=!1}),a("details",{class:"own"},
a("summary",{},"Try your own text"),e,a("p",{},n," ",o))}var Un=5,Vn=.04,Lt=2e3,Ct=class{constructor(t,{hover:e,pick:n,label:o}){this.sequence=t,this.from=0,this.spans=[],this.shades=new Int8Array(0),this.marked=null,
this.painted=[null,null],this.arcs=W("svg",{class:"arcs","aria-hidden":"true"}),this.text=a("p",{class:"tokens","aria-label":o}),this.part=t.shown.length>Lt?a("\
p",{class:"part"}):null,this.box=a("div",{class:"reading"},this.arcs,this.part,this.text),this.fill(0);let i=(r,l)=>this.text.addEventListener(r,c=>{let h=Ts(c);
h!==null&&l(h)});i("pointerover",e),i("focusin",e),i("click",n),this.text.addEventListener("pointerleave",()=>e(null)),this.text.addEventListener("keydown",r=>this.
onKey(r,n))}fill(t){let{shown:e,special:n,joined_to_previous:o}=this.sequence,i=Math.min(Lt,e.length-t);if(this.from=t,this.spans=Array.from({length:i},(c,h)=>{
let d=e[t+h],p=d.length>40?E(d,400):null,f={class:n[t+h]?"token special":"token","data-i":t+h,role:"button",tabindex:h?"-1":"0",title:p};return a("span",f,E(d,40))}),
this.shades=new Int8Array(i),this.marked=null,this.text.replaceChildren(...this.spans.flatMap((c,h)=>[o[t+h]&&h?"":" ",c])),!this.part)return;let r=(c,h)=>{let d=c<
0||c>=e.length;return a("button",{type:"button",disabled:d,onclick:()=>this.showFrom(c)},h)},l=`tokens ${t} to ${t+i-1} of ${e.length}`;this.part.replaceChildren(
r(t-Lt,"earlier"),l,r(t+Lt,"later"))}showFrom(t){this.fill(t),this.draw()}onKey(t,e){let n=Ts(t);if(n===null)return;let o={ArrowLeft:-1,ArrowRight:1,Enter:0," ":0}[t.
key];if(o===void 0)return;if(t.preventDefault(),t.stopPropagation(),o===0){e(n);return}let i=this.spans[n-this.from+o];i&&(this.spans[n-this.from].tabIndex=-1,i.
tabIndex=0,i.focus())}paint(t,e){this.painted=[t,e],this.part&&e!==null&&!this.spanOf(e)&&this.fill(Math.floor(e/Lt)*Lt),this.draw()}spanOf(t){return this.spans[t-
this.from]}draw(){let[t,e]=this.painted,n=t?Math.max(1e-9,Se(t)):1;this.spans.forEach((o,i)=>{let r=t?t[this.from+i]:0,l=r>.001||r>0&&this.part?Math.sqrt(r/n):0,
c=l>.02?Math.round(72*l):0;c!==this.shades[i]&&(this.shades[i]=c,o.style.backgroundColor=c?`color-mix(in srgb, var(--shade) ${c}%, transparent)`:"",o.style.color=
c>0?"var(--ink)":"")}),this.marked?.classList.remove("from"),this.marked=e===null?null:this.spanOf(e)??null,this.marked?.classList.add("from"),this.arcs.replaceChildren(),
t&&e!==null&&this.marked&&this.drawArcs(t,e,this.marked)}drawArcs(t,e,n){let o=this.box.getBoundingClientRect(),i=l=>{let c=l.getBoundingClientRect();return[c.left+
c.width/2-o.left,c.top-o.top]},r=i(n);for(let l of Le(t,Un,Vn,c=>c!==e&&this.spanOf(c)!==void 0)){let c=i(this.spanOf(l)),h=Math.min(r[1],c[1])-Math.min(34,8+Math.
abs(c[0]-r[0])/9),d=W("path",{d:`M${r} C${r[0]},${h} ${c[0]},${h} ${c}`,fill:"none","stroke-width":(.8+3*Math.sqrt(t[l])).toFixed(2),"stroke-opacity":(.35+.6*t[l]).
toFixed(2)});this.arcs.append(d)}}};function Ts(s){let t=Vt(s,".token");return t?Number(t.dataset.i):null}function Le(s,t,e,n=()=>!0){let o=[];for(let i=0;i<s.length;i+=
1)s[i]>=e&&n(i)&&o.push(i);return o.sort((i,r)=>s[r]-s[i]).slice(0,t)}var Et="looks",qt="seen",Kn=1e6,Gn=80,Yn=70;function Ls(s,t){let e=s.second===void 0?void 0:P.get(s.second),n=new Ce(s,t,e??null);return{element:n.element,start:()=>n.
start(),resize:()=>n.paint(),stop:()=>n.stop(),moveTo:(o,i)=>n.moveTo(o,i)}}function As(s){let{stack:t,layer:e,head:n,row:o,...i}=s;return JSON.stringify(i)}var Ce=class{constructor(t,e,n){
this.state=t,this.head=e,this.second=n,this.text=re(t),this.looks=t.dir!==qt,this.live=!0,this.turn=0,this.pinned=null,this.token=null,this.cell=null,this.timer=
0,this.texts=null,this.spoken=a("p",{class:"said"}),this.panes=(n===null?[e]:[e,n]).map(c=>this.makePane(c)),this.textSide=a("div",{class:"textside"}),this.panel=
n===null?new Ht(e):null,this.top=Os(e,n),this.strip=new oe(e,this.text),this.compare=this.compareControl();let o=this.panel?.element??ks(e,n),i=a("div",{class:"\
panes"},this.panes.map(c=>c.box)),r=a("div",{class:"mapside"},this.controls(),i,this.textSide),l=a("div",{class:n===null?"scene":"scene both"},r,o);this.element=
a("div",{class:"headview"},this.top,l,this.strip.element)}makePane(t){let e=a("p",{class:"cellnote"}),n=a("canvas",{class:"profile","aria-hidden":"true"}),o=new ie(
{point:h=>{this.cell=h,this.aim(h&&h[this.looks?0:1])},pick:h=>this.pin(h[this.looks?0:1]),drawn:()=>this.drawProfiles()}),i=(h,d,p)=>a("button",{type:"button",
"aria-label":p,onclick:d},h),r=a("div",{class:"zoom"});r.append(i("+",()=>o.zoom(1.6),"Zoom in"),i("−",()=>o.zoom(1/1.6),"Zoom out"),i("Whole map",()=>o.showAll(),
"Whole map"),i("PNG",()=>o.savePng(),"Download the map as PNG"));let l=this.second===null?null:a("h3",{},`${u.heads[t]} `,a("small",{},J(t))),c=a("div",{class:"\
under"},Qn(),r,e);return{head:t,map:null,view:o,profile:n,note:e,box:a("div",{class:"pane"},l,o.box,n,c)}}compareControl(){let t=B("most_similar",this.head),{site:e}=b[this.
head],n=u.heads.filter((l,c)=>b[c].site===e&&l!==u.heads[this.head]),o=[...new Set([t,...n])].filter(Boolean).map(l=>a("option",{value:l})),i=a("input",{list:"o\
thers",placeholder:t?`e.g. ${t}`:"head",size:"9","aria-label":"Compare with head",autocomplete:"off",onchange:()=>{let l=i.value.trim();$({second:P.has(l)?l:void 0})}});
i.value=this.state.second??"";let r=a("label",{},a("span",{},"Compare with"),i);return a("div",{class:"choice"},r,a("datalist",{id:"others"},o))}controls(){let{
norm:t,hide:e}=this.state;return a("div",{class:"controls"},ae(this.text),this.compare,Rt("norm-weighted",t==="1",n=>$({norm:n?"1":void 0}),w("norm-weighted")),
Rt("hide delimiters",e==="1",n=>$({hide:n?"1":void 0}),w("hide delimiters")))}async start(){let t=await Promise.all(this.panes.map(e=>bt(this.text,e.head))).catch(
()=>[null]);this.live&&this.showMaps(t)}moveTo(t,e){let{map:n}=this.panes[0],o=n!==null&&!(n instanceof I);return this.second===null&&this.texts&&o&&As(t)===As(
this.state)?this.turnTo(t,e):null}async turnTo(t,e){this.state=t,this.head=e,this.turn+=1;let{turn:n}=this,o=setTimeout(()=>n===this.turn&&this.panes[0].view.clear(),
Gn),i=await bt(this.text,e).catch(()=>null);if(clearTimeout(o),!this.live||n!==this.turn)return;this.panes[0].head=e;let r=this.panel?.element.querySelector("de\
tails[open]")!==null,[l,c,h]=[new Ht(e,r),Os(e,null),this.compareControl()];this.panel?.element.replaceWith(l.element),this.top.replaceWith(c),this.compare.replaceWith(
h),Object.assign(this,{panel:l,top:c,compare:h}),this.strip.show(e),this.showMaps([i])}showMaps(t){let{norm:e,hide:n}=this.state;if(!t[0]){this.texts=null;let r=u.
served?"The map of this head did not arrive.":"The map of this head is not in this page.";this.textSide.replaceChildren(a("p",{class:"dim"},r)),this.panes.forEach(
l=>l.box.remove());return}this.panes.forEach((r,l)=>{r.map=t[l]?.reweighted(e==="1",n==="1")??null,r.map&&r.view.show(r.map)});let o=this.panes[0].map,i=this.token===
this.pinned?null:this.token;this.pinned=tt(this.state.row,this.looks?o.queries:o.keys),this.token=i??this.pinned,(this.texts?.rows.sequence!==o.rows||this.texts.
columns.sequence!==o.columns)&&this.makeTexts(o),this.paint(),this.panel?.showPairs(t[0]),this.second===null&&!u.served&&o.queries*o.keys<=Kn&&this.computeAhead()}async computeAhead(){
let{turn:t}=this;for(let e of[[0,1],[1,0],[0,-1],[-1,0]]){if(await zt(),!this.live||t!==this.turn)return;await bt(this.text,mt(this.head,e)).catch(()=>null)}}stop(){
this.live=!1;for(let{map:t}of this.panes)t instanceof I&&t.cancel()}makeTexts(t){this.token=this.pinned,this.cell=null;let e=(l,c)=>new Ct(l,{hover:h=>this.aim(
h),pick:h=>this.pin(h),label:c}),n=e(t.rows,t.square?"Tokens of the text":"Tokens that look"),o=t.square?n:e(t.columns,"Tokens that are looked at");this.texts={
rows:n,columns:o};let i=this.second===null?"Text":`Text, as ${u.heads[this.head]} reads it`,{note:r}=u.texts[this.text];this.textSide.replaceChildren(a("div",{class:"\
texttop"},a("h3",{},i),this.directionControl()),r?a("p",{class:"dim"},V(r)):"",...new Set([n.box,o.box]),this.spoken)}directionControl(){let t=(o,i)=>{let l=a("\
input",{type:"radio",name:"way",value:o,onchange:()=>$({dir:o===Et?void 0:o})});return l.checked=o===Et===this.looks,a("label",{},l,i)},e=a("legend",{class:"qui\
et"},"Direction"),n=[t(Et,"where a token looks"),t(qt,"who looks at a token")];return a("fieldset",{class:"way"},e,n,w("direction"))}aim(t){this.token=t??this.pinned,
this.paint()}pin(t){this.pinned=this.pinned===t?null:t,this.token=this.pinned,vt({row:this.pinned===null?void 0:String(t)}),this.paint()}paint(){let{texts:t,token:e,
looks:n}=this,o=this.panes[0].map;if(!t||!o)return;for(let c of this.panes)c.map&&(c.view.mark=n?{row:e,column:null}:{row:null,column:e},c.view.draw(),c.note.textContent=
this.cellText(c.map));let i=e===null?null:o.weights(n,e);e!==null&&!i&&this.fetchWeights(e);let[r,l]=n?[t.rows,t.columns]:[t.columns,t.rows];r===l?r.paint(i,e):
(r.paint(null,e),l.paint(i,null)),this.spoken.textContent=this.tokenText(o,i)}fetchWeights(t){clearTimeout(this.timer),this.timer=window.setTimeout(async()=>{if(!this.
live||t!==this.token)return;let e=this.panes.map(({map:n})=>n&&Ot(n,this.looks,t));await Promise.all(e).catch(()=>{}),this.live&&t===this.token&&this.panes[0].map?.
weights(this.looks,t)&&this.paint()},this.pinned===t?0:Yn)}cellText(t){if(!this.cell)return" ";let[e,n]=this.cell,o=t.weights(!0,e);return o?`“${E(t.rows.shown[e],
16)}” → “${E(t.columns.shown[n],16)}” ${o[n].toFixed(3)}`:" "}tokenText(t,e){if(this.token===null)return"Point at a token, in the text or on the map; c\
lick to keep it.";let[n,o]=this.looks?[t.rows,t.columns]:[t.columns,t.rows],i=`“${E(n.shown[this.token],24)}”, token ${this.token}`;if(!e)return`${i}: loadi\
ng …`;let r=c=>`“${E(o.shown[c],16)}” ${y(e[c])}`,l=Le(e,6,.005).map(r).join(", ")||"no token with much weight";return`${i}, ${this.looks?"looks at":"is l\
ooked at by"} ${l}`}drawProfiles(){for(let{map:t,view:e,profile:n}of this.panes){let o=this.token===null||!this.looks?null:t?.weights(!0,this.token)??null;n.style.
visibility=o?"visible":"hidden",o&&$s(n,o,e.place)}}};function Qn(){let s=St(o=>at(ge(),o)),t=[0,.1,.25,.5,1].map(o=>{let i=a("span",{},String(o));return i.style.
left=`${100*o**L.weight_exponent}%`,i}),e=a("div",{class:"scale"},s,a("div",{class:"ticks","aria-hidden":"true"},t)),n=a("span",{},"attention weight, square-roo\
t scale ",w("weight"));return a("div",{class:"weightbar"},e,n,a("span",{},"reading the map ",w("attention map")))}function Os(s,t){let e=(i,r,l)=>{let c=mt(s,i),
h=`${l}: ${u.heads[c]}`;return a("a",{href:A(c),class:"step",title:h,"aria-label":h},r)},n=a("span",{class:"steps"});n.append(e([0,-1],"←","previous head"),e(
[0,1],"→","next head"),e([-1,0],"↑","previous layer"),e([1,0],"↓","next layer"));let o=t===null?Jt(C(s)):ys(s,t);return a("div",{class:"headtop"},a("h2",{},
u.heads[s]),t===null?null:a("span",{class:"beside"},`and ${u.heads[t]}`),M("kind")&&t===null?a("span",{class:"chip"},$e(s)):null,n,a("a",{href:F(Qt),class:"back"},
"← All heads"),a("p",{class:"does"},o))}var Cs=s=>U("Show",[[Et,"where the token looks"],[qt,"who looks at the token"]],s?Et:qt,t=>$({dir:t===Et?void 0:t}),w(
"direction"));var Jn=["entropy","max_weight","distance","first","special","previous","next","self","induction","same_token","output_norm","kind_score","driven_score","most_si\
milar_cka"];function Xn(){let s=Ke(),t=[u.importance??"",...Jn].filter(e=>s.includes(e));return[...t,...s.filter(e=>!t.includes(e))]}function Es(s){let t=Xn(),e=M(
"kind")!==null,n=s.color&&t.includes(s.color)?s.color:e?"kind":t[0]??"kind",o=u.heads.some((d,p)=>C(p)===s.kind)?s.kind:void 0,i=new te(n,o),r=d=>$({kind:d}),l=a(
"section",{class:"gridside","aria-label":"Grid of heads"});l.append(Zn(n,t,e),i.box,rs(n,o,r),i.note);let c=u.heads.map((d,p)=>p).filter(d=>o===void 0||C(d)===o),
h=u.table?a("section",{class:"tableside","aria-label":"Table of heads"}):null;return o!==void 0&&h?.append(to(o,c.length)),h?.append(bs(s,c,n)),{element:a("div",
{class:"two"},l,h),start:()=>i.draw(),resize:()=>i.draw()}}function Zn(s,t,e){let n=t.map(l=>[l,l]);e&&n.unshift(["kind","kind of head"]);let o=Oe({view:"tokens"});
if(!n.length)return a("div",{class:"controls"},o);let i=s==="kind"?w("kind"):Q(s);return a("div",{class:"controls"},U("Colour by",n,s,l=>$({color:l,kind:void 0}),
i),o)}function to(s,t){let e=a("button",{type:"button",onclick:()=>$({kind:void 0})},"Show all heads"),n=a("b",{},`${G(t,"head")} of kind “${K(s)}”`);return a(
"p",{class:"filter"},n,": ",me(s)," ",e)}var ht=320,Ee={left:66,right:12,top:10,bottom:46},eo=2;function Is(s){let{curve:t,cost:e}=u,n=e?new Ie(e):null,o=a("div",{class:"cutview"});if(!t?.curves.length)
return o.append(a("p",{class:"lead"},"The quality without some of the heads was not measured for this page.")),n&&o.append(n.element),{element:o};let i=new Re(s,
t,n),r=a("p",{class:"lead"},a("b",{},so(t))," ",w("can be pruned")," ",no(t)),l=a("section",{},i.list);return o.append(r,a("div",{class:"two"},a("section",{class:"\
curveside"},i.element),l)),n&&o.append(n.element),{element:o,start:()=>i.draw(),resize:()=>i.draw()}}var Rs=s=>s.heads??s.curves[0].order.length;function so(s){
let t=$t(s.limit,3);return s.prunable?`${s.prunable} of ${Rs(s)} heads can be pruned for less than ${t} of quality.`:`No head can be pruned for less than ${t} o\
f quality.`}function no(s){if(!s.cut)return"Heads are switched off together, the least important first, and the model is measured again. Nothing is refitted her\
e: real pruning (multihead prune) does better.";let t=G(s.fitted??0,"document"),e=`its quality measured on ${s.judged} others`;return`Every point is a pruned mo\
del: its weights were refitted on ${t}, ${e}.`}var Ie=class{constructor(t){this.cost=t,this.table=a("div",{class:"scroll wide"});let e=z("What attention costs",
"attention costs"),n=a("p",{class:"dim"},t.title.slice(1).join(" · "));this.element=a("section",{},e,n,this.table),this.show()}show(t){let{heading:e,rows:n}=this.
cost,o=t?.cost,i=o?[e[0],`with ${t.kept} heads`]:e,r=o?n.map(([p,m],f)=>[p,m,o[f]]):n,l=["none",L.format.missing],c=r.filter(([,...p])=>p.some(m=>!l.includes(m))),
h=a("tr",{},a("td"),i.map(p=>a("th",{scope:"col"},p))),d=c.map(([p,...m])=>a("tr",{},a("th",{scope:"row"},p," ",oo(p)),m.map(f=>a("td",{},f))));this.table.replaceChildren(
a("table",{class:"cost"},a("thead",{},h),a("tbody",{},d)))}};function oo(s){let t=`cost: ${s}`;return Object.hasOwn(H,t)?w(s,H[t]):null}var Re=class{constructor(t,e,n){
this.curve=e,this.costs=n,this.total=Rs(e),this.which=tt(t.method,e.curves.length)??0,this.line=e.curves[this.which],this.points=qs(this.line.points);let o=tt(t.
gone,this.total+1)??e.prunable,[i,r]=e.cut?[this.points.length-1,this.nearest(o)]:[this.total,o];this.slider=a("input",{type:"range",min:0,max:i,value:r,"aria-l\
abel":"heads removed"}),this.slider.addEventListener("input",()=>{vt({gone:String(this.removed)}),this.draw()}),this.canvas=a("canvas",{class:"curve",role:"img",
"aria-label":"Quality lost against heads kept"}),this.frame=a("div",{class:"gridbox"},this.canvas),this.list=a("div",{class:"gone"});let l=a("h3",{},`Quality lo\
st: ${e.unit} `,w("quality lost")),c=a("label",{class:"slider"},a("span",{},"heads removed"),this.slider);this.element=a("div",{},l,this.frame,c,this.legend())}get removed(){
let t=Number(this.slider.value);return this.curve.cut?this.points[t].gone:t}nearest(t){let e=this.points.map(n=>Math.abs(n.gone-t));return e.indexOf(Math.min(...e))}legend(){
let{curves:t}=this.curve;if(t.length===1)return a("p",{class:"legend dim"},t[0].method," ",w("method"));let e=t.map((n,o)=>{let i=a("i",{class:"dot"});i.style.background=
we(o);let r=()=>$({method:String(o),gone:String(this.removed)}),l=String(o===this.which);return a("button",{type:"button",class:"key","aria-pressed":l,onclick:r},
i,n.method)});return a("p",{class:"legend",role:"group","aria-label":"method"},e,w("method"))}lossAt(t){let{points:e}=this,n=e.findIndex(r=>r.gone>=t);if(n<0)return e[e.
length-1].lost;if(n===0||e[n].gone===t)return e[n].lost;let[o,i]=[e[n-1],e[n]];return o.lost+(t-o.gone)/(i.gone-o.gone)*(i.lost-o.lost)}draw(){let{left:t,right:e,
top:n,bottom:o}=Ee,i=Math.min(this.frame.clientWidth||560,720),r=N(this.canvas,i,ht),l=this.curve.curves.flatMap(({points:m})=>m.map(({lost:f})=>Math.min(f,eo))),
[c,h]=[Math.min(0,...l),Math.max(.01,this.curve.limit,...l)],d=m=>t+m/this.total*(i-t-e),p=m=>ht-o-(m-c)/(h-c)*(ht-n-o);this.drawAxes(r,i,d,p,c,h),r.save(),r.beginPath(),
r.rect(t,n-4,i-t,ht-n-o+8),r.clip(),this.curve.curves.forEach((m,f)=>{let v=qs(m.points);r.strokeStyle=r.fillStyle=we(f),r.lineWidth=f===this.which?2.5:1.2,r.beginPath();
for(let T of v)r.lineTo(d(T.gone),p(T.lost));r.stroke();for(let T of v)r.beginPath(),r.arc(d(T.gone),p(T.lost),3,0,2*Math.PI),r.fill()}),r.restore(),r.strokeStyle=
x("--mark"),r.lineWidth=1.5,qe(r,d(this.removed),n,d(this.removed),ht-o),this.describe(this.removed)}drawAxes(t,e,n,o,i,r){let{left:l,right:c,bottom:h}=Ee,d=o(this.
curve.limit);t.font=`11px ${_}`,t.fillStyle=x("--dim"),t.strokeStyle=x("--line"),t.lineWidth=1,t.textBaseline="middle";for(let p=0;p<=4;p+=1){let m=i+(r-i)*p/4;
t.textAlign="right",(Math.abs(o(m)-d)>12||p===0)&&t.fillText(`${Math.round(100*m)} %`,l-8,o(m)),qe(t,l,o(m),e-c,o(m));let f=Math.round(this.total*(4-p)/4);t.textAlign=
p===0?"left":p===4?"right":"center",t.fillText(String(f),n(this.total-f),ht-h+14)}t.textAlign="center",t.fillStyle=x("--ink"),t.font=`600 12px ${_}`,t.fillText(
"heads kept",(l+e-c)/2,ht-8),Y(t,"quality lost",8,(Ee.top+ht-h)/2),t.textAlign="right",t.fillText(`${Number((100*this.curve.limit).toPrecision(3))} %`,l-8,d),t.
setLineDash([4,4]),t.strokeStyle=x("--dim"),qe(t,l,d,e-c,d),t.setLineDash([])}describe(t){let e=this.points.find(d=>d.gone===t),n=e?.heads??this.line.order.slice(
0,t),i=`: ${e?"":"about "}${$t(this.lossAt(t))} of quality lost.`,r=`${G(t,"head")} removed, ${this.total-t} of ${this.total} heads kept`,l=u.sites.map(d=>{let p=n.
filter(f=>Pt(f)===d.label),m=a("td",{class:"few"},`${d.heads-p.length} of ${d.heads}`);return a("tr",{},a("th",{scope:"row"},d.label),m,a("td",{class:"names"},io(
p)))}),c=["layer","heads kept","removed heads"].map(d=>a("th",{scope:"col"},d)),h=a("table",{class:"gonetable"},a("thead",{},a("tr",{},c)),a("tbody",{},l));this.
list.replaceChildren(a("p",{},a("b",{},r),i),...ro(e),a("div",{class:"scroll"},h)),this.costs?.show(e)}},qs=s=>[...s].sort((t,e)=>t.gone-e.gone);function io(s){
return s.map((t,e)=>{let n=P.get(t);return[e?" ":"",n===void 0?t:a("a",{href:A(n)},t)]})}function ro(s){let t=[];if(s?.parameters){let e=u.model.parameters,n=$t(
1-s.parameters/e);t.push(a("p",{},`${_t(e)} parameters → ${_t(s.parameters)} (${n} less)`))}if(s?.speed){let{ratio:e,low:n,high:o,batch:i,tokens:r,rounds:l,verdict:c}=s.
speed,h=c==="faster"||c==="slower"?`${O(e)} times as fast`:c,p=`${`${n.toFixed(2)} to ${o.toFixed(2)}`}, ${l} interleaved rounds, ${i} × ${r} tokens`;t.push(a(
"p",{class:"dim"},`The model on this machine: ${h} (${p}).`))}return t}function qe(s,t,e,n,o){s.beginPath(),s.moveTo(t,e),s.lineTo(n,o),s.stroke()}var ao=10,Ps=40,lo=18,co=760;function js(s){let t=u.pairs,e=g=>t.measures.find(j=>j.name===g),n=e(s.measure)??e(t.by)??t.measures[0],o=[...new Set(t.heads.map(Pt))],
i=o.find(g=>g===s.scope),r=s.order!=="layer",l=(r?t.order:t.heads.map((g,j)=>j)).filter(g=>i===void 0||Pt(t.heads[g])===i),c=new Pe(t,n,l,s.pick),h=a("ol",{class:"\
toppairs"}),d=[["cluster","similar heads together"],["layer","by layer"]],p=[["all","all layers"],...o.map(g=>[g,g])],m=a("div",{class:"controls"},U("Measure",t.
measures.map(g=>[g.name,ct(g)]),n.name,g=>$({measure:g}),w(ct(n),ne(n))),U("Order",d,r?"cluster":"layer",g=>$({order:g==="layer"?g:void 0})),U("Heads",p,i??"all",
g=>$({scope:g==="all"?void 0:g}))),f=a("section",{class:"groups"},z("Most similar pairs"),h),v=a("section",{class:"pairside"},c.box,c.legend(),c.note),T=a("div",
{class:"two"},v,a("div",{},f,uo(t)));return{element:a("div",{},a("p",{class:"lead"},xe(n)),m,T),start:async()=>{let g=await se(n);c.show(g);let j=fs(n,g,l,ao);h.
replaceChildren(...j.map(xt=>ho(t,n,xt)))},resize:()=>c.draw()}}function ho(s,t,[e,n,o]){let[i,r]=[s.heads[e],s.heads[n]],l=`${ct(t)} ${y(o)}`;return a("li",{},
a("a",{href:_s(i,r)},`${i} and ${r}`),a("span",{class:"value"},l))}var _s=(s,t)=>F({view:void 0,pick:void 0,...jt(P.get(s)??0),second:t});function uo({groups:s,
notes:t}){let e=i=>i.map((r,l)=>[l?" ":"",a("a",{href:A(P.get(r)??0)},r)]),n=s.length?a("ul",{},s.map(i=>a("li",{},e(i)))):a("p",{class:"dim"},"No two heads are\
 similar enough to form a group."),o=z(`Groups of similar heads (${s.length})`,"group");return a("section",{class:"groups"},o,n,t.map(i=>a("p",{class:"dim"},i)))}
var Pe=class{constructor({heads:t},e,n,o){this.names=n.map(r=>t[r]),this.measure=e,this.order=n,this.picked=o===void 0?-1:this.names.indexOf(o),this.side=Ps,this.
gutter=40,this.values=null;let i="Similarity of every two heads; the lists beside it name the most similar.";this.canvas=a("canvas",{class:"pairs",role:"img","a\
ria-label":i}),this.box=a("div",{class:"pairbox"},this.canvas),this.note=a("p",{class:"hover"},"Point at a cell for its two heads; click to see them side by sid\
e."),this.canvas.addEventListener("pointermove",r=>{let l=this.under(r);this.canvas.style.cursor=l?"pointer":"default",l&&this.describe(...l)}),this.canvas.addEventListener(
"click",r=>{let l=this.under(r);if(!l)return;let[c,h]=l.map(d=>this.names[d]);location.hash=c===h?A(P.get(c)??0):_s(c,h)})}show(t){this.values=(e,n)=>t(this.order[e],
this.order[n]),this.draw(),this.picked>=0&&this.describe(this.picked,this.picked)}under(t){let[e,n]=X(t,this.canvas),[o,i]=[Math.floor((e-this.gutter)/this.side),
Math.floor((n-this.gutter)/this.side)],r=this.order.length;return i>=0&&o>=0&&i<r&&o<r?[i,o]:null}describe(t,e){let{values:n,names:o,measure:i}=this;if(!n)return;
if(t!==e){this.note.textContent=`${o[t]} and ${o[e]}: ${ct(i)} ${y(n(t,e))}`;return}let r=Ft(i)?1:-1,l=o.map((h,d)=>d).filter(h=>h!==t&&!Number.isNaN(n(t,h)));l.
sort((h,d)=>r*(n(t,h)-n(t,d)));let c=l.slice(0,3).map(h=>`${o[h]} ${y(n(t,h))}`);this.note.textContent=`Most similar to ${o[t]}: ${c.join(", ")}`}color(t){return Number.
isNaN(t)?x("--line"):this.measure.low<0?at("signed",(t+1)/2):at("measure",Ft(this.measure)?1-t:t)}legend(){let{low:t}=this.measure,e=St(l=>this.color(t+l*(1-t))),
n=l=>a("span",{class:"dim"},l),o=t<0?["−1, opposite","1, the same"]:["0, unrelated","1, the same"],[i,r]=Ft(this.measure)?["0, the same","1, nothing in common"]:
o;return a("p",{class:"legend"},n(i),e,n(r))}draw(){let{values:t,names:e}=this;if(!t)return;let n=e.length,o=N(this.canvas,10,10);o.font=`10px ${_}`,this.gutter=
lo+8+Math.ceil(Math.max(32,...e.map(d=>o.measureText(d).width)));let i=Math.min(this.box.clientWidth||600,co);this.side=Math.max(1,Math.min(Ps,(i-this.gutter)/n));
let{side:r,gutter:l}=this;N(this.canvas,l+r*n,l+r*n);let c=r>12?r-1:r+.5;for(let d=0;d<n;d+=1)for(let p=0;p<n;p+=1)o.fillStyle=this.color(d===p?NaN:t(d,p)),o.fillRect(
l+p*r,l+d*r,c,c);o.font=`600 12px ${_}`,o.fillStyle=x("--ink"),o.textBaseline="middle",o.textAlign="center",o.fillText("head",l+r*n/2,7),Y(o,"head",7,l+r*n/2),o.
font=`10px ${_}`;let h=Math.max(1,Math.ceil(13/r));for(let d=0;d<n;d+=h)o.fillStyle=x(d===this.picked?"--ink":"--dim"),o.textAlign="right",o.fillText(e[d],l-4,l+
(d+.5)*r),o.textAlign="left",Y(o,e[d],l+(d+.5)*r,l-4);this.picked<0||(o.strokeStyle=x("--mark"),o.lineWidth=1.5,o.strokeRect(l,l+this.picked*r,r*n,r))}};var Ns={holds:"✓ holds",fails:"✗ fails","holds only if":"~ conditional"},Ws=s=>Object.hasOwn(Ns,s)?Ns[s]:s;function Fs(){let{about:s,statements:t}=u.theory,
e=["#","statement","verdict","as computed","as stated"].map(c=>{let h=c==="#"?null:[" ",w(c)];return a("th",{scope:"col"},c,h)}),n=a("tbody",{},t.map(mo)),o=a("\
table",{class:"theory"},a("thead",{},a("tr",{},e)),n),i=`Statements about multi-head attention from papers and textbooks. Both sides were computed on this model\
: ${po(t)}. Click a statement for its formula and the result of each layer.`,r={class:"scroll wide",tabindex:"0",role:"region","aria-label":"Statements and verd\
icts"},l=[a("p",{class:"lead"},i),a("p",{class:"dim"},s)];return{element:a("div",{},l,a("div",r,o))}}function po(s){let t=new Map;for(let{verdict:e}of s)t.set(e,
(t.get(e)??0)+1);return[...t].map(([e,n])=>e==="holds only if"?`${n} ${n===1?"holds":"hold"} under a condition`:e==="holds"||e==="fails"?`${n} ${n===1?e:e.slice(
0,-1)}`:`${n} ${n===1?"has":"have"} ${e}`).join(", ")}function mo(s){let{id:t,title:e,formula:n,verdict:o,tally:i}=s,r=Object.entries(s.layers),[l,c]=r.find(([,
f])=>f.verdict===o)??r[0],h=s.holds_when.replace(/\.$/,""),d=r.map(([f,v])=>a("tr",{},a("th",{scope:"row"},f),a("td",{},Ws(v.verdict)),a("td",{},v.lhs),a("td",{},
v.rhs))),p=a("details",{},a("summary",{},e),a("code",{},n),a("p",{},c.because));h&&p.append(a("p",{class:"dim"},`True when ${h}.`)),p.append(a("table",{class:"l\
ayers"},a("tbody",{},d)));let m=i.replace(/^(holds|fails|conditional)/,f=>Ws(f==="conditional"?"holds only if":f));return a("tr",{class:`verdict ${o.replaceAll(
" ","-")}`,"data-key":t},a("th",{scope:"row"},t),a("td",{class:"statement"},p),a("td",{class:"result"},m),a("td",{title:l},c.lhs),a("td",{},c.rhs))}var Hs=1024;function Ds(s){let t=new je(s,re(s)),e=l=>$({hide:l?"1":void 0}),n=Rt("hide delimiters",t.hide,e,w("hide delimiters")),o=a("div",{class:"controls"},
ae(t.text),Cs(t.looks),n),r=a("div",{class:"tokensview"},a("p",{class:"lead"},"Click a token of the text. Each box is a head and shows the token with the larges\
t weight: the darker the box, the larger the weight. Click a box to open its head."),o);return r.append(t.tokens.box,t.spoken,fo(),t.table),{element:r,start:()=>t.
choose(t.token),stop:()=>t.stop()}}var je=class{constructor(t,e){this.text=e,this.looks=t.dir!==qt,this.hide=t.hide==="1",this.live=!0,this.turn=0,this.sequence=
u.texts[e].sequences[0];let n=this.sequence.special.findIndex((i,r)=>!i&&r>0);this.token=tt(t.row,this.sequence.shown.length)??Math.max(0,n);let o=i=>{vt({row:String(
i)}),this.choose(i)};this.tokens=new Ct(this.sequence,{hover:()=>{},pick:o,label:"Tokens of the text"}),this.spoken=a("p",{class:"said",role:"status"}),this.boxes=
[],this.table=u.heads.length>Hs?wo():this.makeTable()}makeTable(){let t=1+Math.max(...b.map(l=>l.number)),e=Array.from({length:t},(l,c)=>a("th",{scope:"col"},String(
c))),n=a("td",{class:"corner"},"layer ↓ head →"),o=u.sites.map((l,c)=>{let h=Array.from({length:t},()=>a("td"));for(let d=nt[c];d<nt[c]+l.heads;d+=1){let p=a(
"a",{href:A(d),"aria-label":u.heads[d]});this.boxes.push(p),h[b[d].number].append(p)}return a("tr",{},a("th",{scope:"row"},l.label),h)}),i=a("table",{class:"tie\
s"},a("thead",{},a("tr",{},n,e)),a("tbody",{},o));return a("div",{class:"scroll wide",tabindex:"0",role:"region","aria-label":"The token with the largest weight\
, for every head"},i)}stop(){this.live=!1}async choose(t){this.token=t,this.turn+=1;let{turn:e,looks:n}=this,o=`“${E(this.sequence.shown[t],40)}”, token ${t}\
.`,i=new Float32Array(this.sequence.shown.length),r=0;this.tokens.paint(null,t);for(let c=0;c<this.boxes.length;c+=1){let h=await yt(this.text,c).catch(()=>null);
if(!this.live||e!==this.turn)return;let[d,p]=h?n?[h.rows,h.columns]:[h.columns,h.rows]:[null,null];if(!h||!p||d!==this.sequence)continue;if(h instanceof I&&!n){
this.spoken.textContent=`${o} On a text this long, open a head to see who looks at a token.`;return}n||await h.complete();let m=await Ot(h.reweighted(!1,this.hide),
n,t).catch(()=>null);if(!m||!this.live||e!==this.turn)return;if(this.showBox(c,m,p),r+=1,p===this.sequence)for(let f=0;f<i.length;f+=1)i[f]+=m[f]}this.tokens.paint(
i.map(c=>c/Math.max(1,r)),t);let l=n?"where it looks":"who looks at it";this.spoken.textContent=`${o} Shaded: ${l}, the mean over all heads.`}showBox(t,e,n){let o=0;
for(let l=1;l<e.length;l+=1)e[l]>e[o]&&(o=l);let i=this.boxes[t],r=Bs(e[o]);i.textContent=E(n.shown[o],7),i.href=F({view:void 0,...jt(t),row:String(this.token)}),
i.title=`${u.heads[t]}: ${E(n.shown[o],60)} ${y(e[o])}`,i.setAttribute("aria-label",i.title),i.style.backgroundColor=zs(r),i.classList.toggle("strong",r>55)}},Bs=s=>Math.
round(78*s**L.weight_exponent),zs=s=>`color-mix(in srgb, var(--shade) ${s}%, transparent)`;function fo(){let s=[.01,.1,.25,.5,1].map(e=>{let n=a("span",{},String(
e));return n.style.backgroundColor=zs(Bs(e)),n});return a("p",{class:"shading"},a("span",{class:"steps"},s)," ","largest weight of the head, square-root scale ",
w("shading"))}var wo=()=>a("p",{class:"dim"},`This view is for up to ${Hs} heads; this model has ${u.heads.length}.`);var le=[{key:"heads",title:"Heads",make:Es,has:()=>!0},{key:"tokens",title:"Tokens",make:Ds,has:()=>u.texts.length>0},{key:"similarity",title:"Similarity",make:js,
has:()=>u.pairs!==null},{key:"pruning",title:"Pruning",make:Is,has:()=>u.curve!==null||u.cost!==null},{key:"theory",title:"Theory",make:Fs,has:()=>u.theory!==null}],
dt=null,_e=0;function go(s,t){let e=le.find(n=>n.key===s.view&&n.has());return e||(t===null?le[0]:null)}async function ce(){let s=performance.now();_e+=1;let t=_e,
e=Yt(),n=pe(e),o=go(e,n),i=!o&&n!==null?dt?.moveTo?.(e,n):null,r=o?.key??"head";i||(dt?.stop?.(),dt=o||n===null?(o??le[0]).make(e):Ls(e,n),q("main").replaceChildren(
dt.element));for(let l of q("views").querySelectorAll("a"))l.dataset.view===(o?.key??"heads")?l.setAttribute("aria-current","page"):l.removeAttribute("aria-curr\
ent");document.body.dataset.view=r,await(i??dt?.start?.()),t===_e&&(!o&&n!==null&&et(ee(n)),document.body.dataset.ready=`${r} ${location.hash}`,document.body.dataset.
took=(performance.now()-s).toFixed(1))}var ko="This page is incomplete: the run was stopped before everything was measured.";function yo(){let{notes:s,model:t,version:e,
made:n}=u,o=u.stopped?[ko]:[];q("card").replaceChildren(...bo()),q("findings").replaceChildren(...o.map(h=>a("p",{class:"finding note"},h)),...xo());let i=()=>document.
documentElement.dataset.theme==="dark"?"light":"dark";q("tools").replaceChildren(a("button",{type:"button",id:"theme",onclick:()=>Ne(i())},"Light / dark"),a("bu\
tton",{type:"button",onclick:()=>window.print()},"Print"));let l=le.filter(h=>h.has()).map(({key:h,title:d})=>a("a",{href:`#view=${h}`,"data-view":h},d));q("vie\
ws").replaceChildren(...l),q("foot").replaceChildren(...[...o,...s].map(h=>a("p",{class:"note"},h)),a("p",{},`multihead ${e}, ${n}. ${t.class}. On a head, arrow\
 keys move to other heads and layers, and Esc leads back to all heads. The URL saves this view.`))}function bo(){let{model:s,corpus:t,sites:e,heads:n}=u,o=e.reduce(
(p,m)=>p+m.kv,0),i=new Set(e.map(p=>p.heads)),r=[...i][0],l=i.size===1?`${G(e.length,"layer")} × ${G(r,"head")}`:`${n.length} heads in ${G(e.length,"layer")}`,
c=G(t.documents,"document"),h=t.tokens?`${t.tokens.toLocaleString("en")} tokens in ${c}`:c;return[[_t(s.parameters),"parameters","parameters"],[l,"","head"],[String(
o),o===n.length?"kv heads, one each":"kv heads","kv heads"],[h,t.name?`of ${E(t.name,60)}`:"","token"]].map(([p,m,f])=>a("span",{},a("b",{},p),` ${m} `,w(f)))}var Us={
heads:"Show heads →",similarity:"Show similarity →",pruning:"Show pruning →",theory:"Show theory →"};function xo(){return u.findings.map(({text:s,link:t})=>{
let e=new URLSearchParams(t.slice(1)).get("view")??"",n=Object.hasOwn(Us,e)?Us[e]:"Show head →",o=a("span",{},vo(s.replace(/(\d) %/g,"$1 %"))),i=a("a",{class:"\
arrow",href:t,onclick:()=>q("views").scrollIntoView()},n);return a("div",{class:"finding"},o,i)})}function vo(s){return s.split(/([\w.]*L\d+H\d+)/).map(t=>{let e=P.
get(t);return e===void 0?t:a("a",{href:A(e)},t)})}function Ne(s){document.documentElement.dataset.theme=s,ss(),dt?.stop?.(),dt=null,u&&ce()}function $o(s){if(Vt(
s,"input, select, textarea, .tokens, canvas.grid, [contenteditable]")||s.altKey||s.ctrlKey||s.metaKey||s.shiftKey)return;let t=pe(Yt());if(document.body.dataset.
view!=="head"||t===null)return;s.key==="Escape"&&$(Qt);let e=Gt[s.key];e&&(s.preventDefault(),history.replaceState(null,"",A(mt(t,e))),ce())}async function Mo(){
let s=window.matchMedia("(prefers-color-scheme: dark)");if(Ne(s.matches?"dark":"light"),s.addEventListener("change",()=>Ne(s.matches?"dark":"light")),typeof DecompressionStream>
"u"){q("main").append(a("p",{class:"lead"},"This browser is too old for this page. Use Chrome 111, Safari 16.4, Firefox 113 or a newer one."));return}await Ve(),
yo(),ce(),window.addEventListener("hashchange",()=>location.hash!=="#main"&&ce()),window.addEventListener("keydown",$o);let t=0;window.addEventListener("resize",
()=>{clearTimeout(t),t=window.setTimeout(()=>dt?.resize?.(),80)})}async function So(s,t=0,{norm:e=!1,hide:n=!1}={}){let o=await bt(t,P.get(s)??-1);if(!o||o instanceof
I)return null;let i=o.reweighted(e,n);return Array.from({length:o.queries},(r,l)=>Array.from(i.row(l)))}async function To(s,t,e=0,{norm:n=!1,hide:o=!1,looks:i=!0}={}){
let l=await(i?yt:bt)(e,P.get(s)??-1);return l&&Array.from(await Ot(l.reweighted(n,o),i,t))}Object.defineProperty(window,"multihead",{value:Object.freeze({weights:So,
row:To,get data(){return u}})});Mo();})();
