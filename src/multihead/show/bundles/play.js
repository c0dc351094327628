"use strict";(()=>{function j(s){let t=document.getElementById(s);if(!t)throw new Error(`the page has no element #${s}`);return t}function l(s,t={},...e){let o=document.createElement(
s);for(let[n,r]of Object.entries(t))r==null||r===!1||(typeof r=="function"?o.addEventListener(n.slice(2),r):o.setAttribute(n,r===!0?"":String(r)));return Fe(o,e),
o}function Fe(s,t){for(let e of t)Array.isArray(e)?Fe(s,e):e!=null&&s.append(e)}function Y(s){j("live").textContent=s}function He(s,t){let e=l("a",{href:URL.createObjectURL(s),download:t});e.click(),setTimeout(()=>URL.revokeObjectURL(e.href),1e4)}function ot(s,t){let e=t.getBoundingClientRect();
return[s.clientX-e.left,s.clientY-e.top]}function Q(s,t){return s.target instanceof Element?s.target.closest(t):null}var De=null,Ue=Uint8Array;async function Be(s){let t=Ue.fromBase64?Ue.fromBase64(s):Uint8Array.from(atob(s),o=>o.charCodeAt(0)),e=new Response(t).body;return new Uint8Array(
await new Response(e.pipeThrough(new DecompressionStream("deflate-raw"))).arrayBuffer())}async function Ge(){let s=j("data"),t=JSON.parse(new TextDecoder().decode(
await Be(s.textContent??"")));return s.remove(),t}function nt(s){return De??=(j("lines").textContent??"").split(`
`),Be(De[s])}var ct=s=>new Float32Array(s.buffer,s.byteOffset,s.byteLength/4),me=s=>new Uint32Array(s.buffer,s.byteOffset,s.byteLength/4),eo=Float64Array.from({
length:32},(s,t)=>2**((t||1)-25));function jt(s){let t=s.length/2,e=new Float32Array(t);for(let o=0;o<t;o+=1){let n=s[o]<<8|s[t+o],r=n>>10&31,a=((r?1024:0)+(n&1023))*
eo[r];e[o]=n&32768?-a:a}return e}var W;function Ke(s){W=s}var pe=s=>s==null||Number.isNaN(s);function J(s,t=W.format.digits){let{missing:e,plain:o}=W.format;if(pe(s))return e;let n=Math.abs(s);return n===1/0?s>0?"∞":
"-∞":Number.isInteger(s)&&n<o[1]?String(s):n>=o[1]||n<o[0]?s.toExponential(1).replace("e+","e").replace(".0e","e"):n<10**(t-1)?String(Number(s.toPrecision(t))):
s.toFixed(0)}function I(s){let{missing:t,fraction_digits:e}=W.format;return pe(s)?t:s.toFixed(e)}var xt=(s,t=2)=>`${J(100*s,t)} %`;function Ve(s){let{prefixes:t}=W.
format;if(pe(s)||Math.abs(s)===1/0)return J(s);let[e,o]=[s,0];for(;Math.abs(e)>=999.5&&o<t.length-1;o+=1)e/=1e3;return o===0?Number.isInteger(e)?String(e):e.toPrecision(
3):`${e.toPrecision(3)} ${t[o]}`}function rt(s,t=24){let e=Array.from(s);return e.length<=t?s:`${e.slice(0,t-1).join("")}…`}var dt=(s,t)=>`${s} ${t}${s===1?"":"s"}`;var $t={head:"From every token, a head looks at other tokens and takes information from them. A layer has several heads, and each looks at different tokens. L3H\
7 is head 7 of layer 3; both are counted from 0.",layer:"A step of the model. Its heads work in parallel, and the next layer reads their output.",token:"A word \
or a piece of a word: the unit that the model reads.",parameters:"The values that training has set. M is a million, k a thousand.","kv heads":"Heads with keys a\
nd values. Where several heads share them (grouped-query attention), there are fewer kv heads than heads.","attention map":"One square per pair of tokens. Each \
row is a query, the token that looks; each column is a key, a token that it looks at. The darker the square (on a dark page, the brighter), the larger the weigh\
t.",switch:"Multiplies the output of a head by a factor: 1 changes nothing, 0 switches the head off, as if it were pruned. Heads of later layers read this outpu\
t, so their maps may change, too.",query:"The token that looks: a row of the map. The weights of a row add up to 1.",key:"A token that a query looks at: a colum\
n of the map.",shading:"The colour of each box shows the largest weight of its head from this token, on a square-root scale like the maps. The shading of the te\
xt shows the mean over all heads, relative to its largest value.",weight:"How much a token takes from a token that it looks at, from 0 to 1. All weights from on\
e token add up to 1. Colours show the square root of the weight, so small weights are visible: 0.25 has the colour halfway to 1.",kind:"What a head mostly does,\
 such as looking at the previous token. A head has a kind only if its score is significantly above a threshold and above chance, measured over several documents\
. Otherwise its name is its leading share with the value of the share.",shares:"Five shares explain why a head looks where it looks; they add up to 1. Spread: i\
t looks at many tokens equally. Rest: it looks at the first or at special tokens. Position: the distance decides. Word: the token that it looks at decides. Matc\
h: both tokens decide. They are parts of log n, for texts of n tokens. Spread and rest lead only where they dominate. Two shares lead where their intervals over\
lap or they differ by less than 15 %.","example rows":"Tokens with large weights in this text, and the three keys that each looks at most. Click a token to see \
its row.",score:"How clearly a head is of its kind, from 0 to 1: for most kinds, the share of its weight on the tokens that define the kind. The tick is the thr\
eshold, the line the 95 % interval, the open dot the score by chance.",evidence:"Why the head has its kind, or none: the score, its 95 % interval, the threshold\
 and the score by chance.",importance:"How much worse the model is without this head. The value after ± is half of the 95 % interval; if the importance is below\
 it, it may be zero.","most similar":"The head with the most similar output, by CKA: 0 is unrelated, 1 is the same.","most similar pairs":"Each line is a pair o\
f heads among the heads that are shown, by the chosen measure. Click a pair to see both maps side by side.",CKA:"Centered kernel alignment: how similar the outp\
uts of two heads are, whatever their rotation. 0 is unrelated, 1 is the same.","norm-weighted":"Each weight is multiplied by the length of the vector that its k\
ey adds to the output, and rows sum to 1 again (Kobayashi et al. 2020). A large weight on a token that adds nothing disappears.","hide delimiters":"Excludes spe\
cial tokens such as [CLS] and [SEP]. The weights of the other tokens are scaled to add up to 1 again.",direction:"A row of the map shows where a token looks. A \
column shows who looks at the token.",distance:"How far away the keys are that a head looks at, in tokens.",entropy:"How widely a head spreads its weight: 0 if \
it looks at one token only, larger if it looks at many tokens.",max_weight:"The largest weight that a query gives to one key; near 1, the head looks at one toke\
n at a time.",first:"The share of the weight on the first token.",special:"The share of the weight on special tokens such as [CLS], [SEP] or the end of a text.",
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
 computed on this model."},Ye=s=>Object.assign($t,s);var X=l("div",{id:"definition",role:"note",hidden:!0}),Z=null;function Mt(){Z?.setAttribute("aria-expanded","false"),Z=null,X.hidden=!0}function so(s,t,e){Mt(),
Z=s,s.setAttribute("aria-expanded","true"),X.replaceChildren(l("b",{},t),l("p",{},e)),document.body.append(X),X.hidden=!1;let o=s.getBoundingClientRect(),{width:n,
height:r}=X.getBoundingClientRect(),a=Math.max(8,Math.min(o.left-12,document.documentElement.clientWidth-n-8)),i=o.bottom+6+r<=window.innerHeight||o.top<r+6;X.style.
left=`${a+window.scrollX}px`,X.style.top=`${(i?o.bottom+6:o.top-r-6)+window.scrollY}px`,Y(`${t}: ${e}`)}document.addEventListener("pointerdown",s=>{let t=s.target;
Z&&!X.contains(t)&&!Z.contains(t)&&Mt()});window.addEventListener("hashchange",Mt);document.addEventListener("keydown",s=>{s.key!=="Escape"||!Z||(s.stopPropagation(),
Z.focus(),Mt())},{capture:!0});function S(s,t=$t[s]){let e=l("button",{type:"button",class:"help","aria-label":`What is ${s}?`,"aria-expanded":"false",onclick:o=>{
o.preventDefault(),o.stopPropagation(),Z===e?Mt():so(e,s,t)}});return e.textContent="?",e}var oo=s=>s.split(",")[0];function Wt(s){let t=oo(s).split(" + ");return W.shares.filter(({name:e})=>t.includes(e))}var at=256;function we(s){let{kinds:t,no_value:e}=W;return Object.hasOwn(t,s)?t[s]:Wt(s)[0]?.colour??e}var no=s=>[1,3,5].map(t=>parseInt(s.slice(t,t+2),16));function ro(s){let t=s.map(no),e=new Uint8Array(3*at);for(let o=0;o<at;o+=1){let n=o/(at-1)*(t.length-1),r=Math.
min(t.length-2,Math.floor(n));for(let a=0;a<3;a+=1)e[3*o+a]=Math.round(t[r][a]+(n-r)*(t[r+1][a]-t[r][a]))}return e}var Qe=new Map;function Je(s){let t=Qe.get(s);
return t||(t=ro(W.ramps[s]),Qe.set(s,t)),t}var ge=()=>document.documentElement.dataset.theme==="dark"?"weight-dark":"weight",Xe=()=>document.documentElement.dataset.
theme==="dark"?"signed-dark":"signed";function ye(s,t){let e=Je(s),o=3*Math.max(0,Math.min(at-1,Math.round(t*(at-1))));return`rgb(${e[o]} ${e[o+1]} ${e[o+2]})`}
var fe=new Map,Ft=null;function D(s){let t=fe.get(s);return t===void 0&&(t=getComputedStyle(document.documentElement).getPropertyValue(s).trim(),fe.set(s,t)),t}
function Ze(){if(!Ft){let s=Je(ge()),t=new Uint8Array(4*at).fill(255);for(let e=0;e<at;e+=1)t.set(s.subarray(3*e,3*e+3),4*e);Ft=new Uint32Array(t.buffer)}return Ft}
function ts(){Ft=null,fe.clear()}var ao=16,Ht="system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif",Tt=()=>window.devicePixelRatio||1;function U(s){let t=s.getContext("2d");if(!t)throw new Error(
"this browser draws no canvas");return t}function B(s,t,e){let o=Tt(),[n,r]=[Math.max(1,Math.round(t*o)),Math.max(1,Math.round(e*o))],a=U(s);return s.width===n&&
s.height===r&&s.style.width&&"reset"in a?a.reset():(s.width=n,s.height=r,s.style.width=`${t}px`,s.style.height=`${e}px`),a.setTransform(o,0,0,o,0,0),a}function be(s,t,e,o){s.save(),s.translate(e,o),s.rotate(-Math.PI/2),s.fillText(t,0,0),s.restore()}var tt=()=>parseFloat(getComputedStyle(document.documentElement).
fontSize)/ao;function ut(s,t,e,o){let[n,r]=[s.length/o,t.length/o],a=new Float32Array(n*r);for(let i=0,h=0;i<n;i+=1){let c=i*o,d=0;for(;d+3<r;d+=4,h+=4){let u=0,m=0,f=0,w=0;
for(let p=0,g=d*o;p<o;p+=1,g+=1){let y=s[c+p];u+=y*t[g],m+=y*t[g+o],f+=y*t[g+2*o],w+=y*t[g+3*o]}a[h]=u,a[h+1]=m,a[h+2]=f,a[h+3]=w}for(;d<r;d+=1,h+=1){let u=0;for(let m=0,
f=d*o;m<o;m+=1,f+=1)u+=s[c+m]*t[f];a[h]=u}if(e)for(let u=0;u<r;u+=1)a[i*r+u]+=e[u]}return a}function At(s,t,e){let[o,n]=[0,0];for(let r=t;r<t+e;r+=1)o+=s[r]/e;for(let r=t;r<
t+e;r+=1)n+=(s[r]-o)**2/e;return{mean:o,scale:1/Math.sqrt(n+1e-5)}}function Dt(s,t,e){let o=t.length,n=new Float32Array(s.length);for(let r=0;r<s.length;r+=o){let{
mean:a,scale:i}=At(s,r,o);for(let h=0;h<o;h+=1)n[r+h]=(s[r+h]-a)*i*t[h]+e[h]}return n}function io(s){if(Math.abs(s)>5.9)return Math.sign(s);let[e,o]=[s,s];for(let n=1;Math.
abs(e)>1e-17*Math.abs(o);n+=1)e*=2*s*s/(2*n+1),o+=e;return 2/Math.sqrt(Math.PI)*Math.exp(-s*s)*o}var es=s=>.5*(1+io(s/Math.SQRT2)),ss=s=>s*es(s),os=s=>es(s)+s*Math.
exp(-.5*s*s)/Math.sqrt(2*Math.PI),ke=(s,t)=>s.map((e,o)=>e+t[o]);function ve(s,t,e){let[o,n]=[-1/0,0];for(let r=t;r<t+e;r+=1)s[r]>o&&(o=s[r]);for(let r=t;r<t+e;r+=
1)n+=s[r]=Math.exp(s[r]-o);for(let r=t;r<t+e;r+=1)s[r]/=n}function mt(s,{heads:t,headDim:e,rotaryDim:o,rotaryBase:n},r=1){let a=s.slice(),[i,h]=[t*e,o/2];for(let c=0,
d=0;c<s.length;c+=i,d+=1)for(let u=0;u<h;u+=1){let m=r*d*n**(-u/h),[f,w]=[Math.cos(m),Math.sin(m)];for(let p=c+u,g=c+i;p<g;p+=e)a[p]=s[p]*f-s[p+h]*w,a[p+h]=s[p+
h]*f+s[p]*w}return a}var xe=3,$=s=>J(s).replace(/^-/,"−");function pt(s,t){let e=s.filter(([n,r])=>n*r!==0).sort((n,r)=>Math.abs(r[0]*r[1])-Math.abs(n[0]*n[1])),o=e.slice(0,xe).map(
([n,r])=>`${$(n)} · ${$(r)}`);return e.length>xe&&o.push(`… (${e.length-xe} smaller terms)`),t!==void 0&&o.push($(t)),o.join(" + ")||"0"}var Et=(s,t,e,o,n=0)=>Array.
from({length:o},(r,a)=>[s[t*o+a],e[n+a]]);var St=["uniform","previous","first"],N=({layers:s,heads:t})=>Array.from({length:s},()=>({heads:Array.from({length:t},()=>({scale:1,pattern:null})),merged:!1,kvHeads:t}));
function Lt({heads:s,merged:t}){let e=s.map((o,n)=>n);return t?[e]:e.map(o=>[o])}var ho=(s,t)=>s==="uniform"?null:s==="first"?0:Math.max(0,t-1),Ut=class{constructor(t,e){
this.sizes=t,this.weights=e}of(t,e){return this.weights[`layers.${t}.${e}`]}run(t,e=N(this.sizes)){let{width:o,words:n,layers:r}=this.sizes,a=this.weights["word\
s.weight"],i=new Float32Array(t.length*o);t.forEach((m,f)=>i.set(a.subarray(m*o,(m+1)*o),f*o));let h=[];for(let m=0;m<r;m+=1){let f=m?h[m-1].output:i;h.push(this.
runLayer(m,f,e[m]))}let c=Dt(h[r-1].output,this.weights["norm.weight"],this.weights["norm.bias"]),d=ut(c,a,null,o),u=d.slice();for(let m=0;m<t.length;m+=1)ve(u,
m*n,n);return{ids:t,embedding:i,layers:h,normed:c,logits:d,probabilities:u}}runLayer(t,e,o){let{width:n,hidden:r,heads:a,headDim:i}=this.sizes,h=L=>this.of(t,L),
c=Dt(e,h("attention_norm.weight"),h("attention_norm.bias")),d=L=>ut(c,h(`attention.${L}_proj.weight`),h(`attention.${L}_proj.bias`),n),u=mt(d("q"),this.sizes),m=this.
shared(mt(d("k"),this.sizes),o.kvHeads),f=this.shared(d("v"),o.kvHeads),{scores:w,weights:p}=this.attend(u,m,o),g=this.mix(p,f),y=g.map((L,z)=>L*o.heads[Math.floor(
z%(a*i)/i)].scale),k=ut(y,h("attention.o_proj.weight"),h("attention.o_proj.bias"),a*i),T=ke(e,k),A=Dt(T,h("hidden_norm.weight"),h("hidden_norm.bias")),M=ut(A,h(
"up.weight"),h("up.bias"),n),E=M.map(ss),b=ut(E,h("down.weight"),h("down.bias"),r),R=ke(T,b);return{input:e,normed:c,q:u,k:m,v:f,scores:w,weights:p,outputs:g,concatenated:y,
attention:k,middle:T,middleNormed:A,up:M,active:E,down:b,output:R}}shared(t,e){let{heads:o,headDim:n}=this.sizes,r=o/e;if(r===1)return t;let a=new Float32Array(
t.length);for(let i=0;i<t.length;i+=r*n)for(let h=0;h<n;h+=1){let c=0;for(let d=i+h;d<i+r*n;d+=n)c+=t[d];for(let d=i+h;d<i+r*n;d+=n)a[d]=c/r}return a}attend(t,e,o){
let{heads:n,headDim:r}=this.sizes,a=n*r,i=t.length/a,h=[],c=[];for(let d of Lt(o)){let u=1/Math.sqrt(d.length*r),[m,f]=[d[0]*r,d.length*r],w=new Float32Array(i*
i);for(let y=0;y<i;y+=1)for(let k=0;k<=y;k+=1){let T=0,A=y*a+m;for(let M=A,E=k*a+m;M<A+f;M+=1,E+=1)T+=t[M]*e[E];w[y*i+k]=T*u}let p=o.merged?null:o.heads[d[0]].pattern,
g=p?lo(p,i):w.slice();if(!p)for(let y=0;y<i;y+=1)ve(g,y*i,y+1);for(let y of d)h[y]=w,c[y]=g}return{scores:h,weights:c}}mix(t,e){let{heads:o,headDim:n}=this.sizes,
r=o*n,a=e.length/r,i=new Float32Array(e.length),h=new Float64Array(n);for(let c=0;c<o;c+=1)for(let d=0;d<a;d+=1){h.fill(0);for(let u=0;u<=d;u+=1){let m=t[c][d*a+
u];if(m!==0)for(let f=0,w=u*r+c*n;f<n;f+=1,w+=1)h[f]+=m*e[w]}i.set(h,d*r+c*n)}return i}};function lo(s,t){let e=new Float32Array(t*t);for(let o=0;o<t;o+=1){let n=ho(
s,o);n===null?e.fill(1/(o+1),o*t,o*t+o+1):e[o*t+n]=1}return e}function Bt({ids:s,probabilities:t}){let e=t.length/s.length,o=0;for(let n=0;n+1<s.length;n+=1)o-=
Math.log(t[n*e+s[n+1]]);return s.length>1?o/(s.length-1):0}function ns({ids:s,probabilities:t}){let e=t.length/s.length;return s.map((o,n)=>{let r=0;for(let a=1;a<
e;a+=1)t[n*e+a]>t[n*e+r]&&(r=a);return r})}var Ct=(s,t,e)=>s.subarray(t*e,(t+1)*e);function rs(s,t,e){let{mean:o,scale:n}=At(s,0,s.length);return r=>`(x − mean) / deviation · weight + bias = (${$(s[r])}\
 − ${$(o)}) / ${$(1/n)} · ${$(t[r])} + ${$(e[r])}`}function co({model:s,layer:t,sizes:e},o){let{width:n,heads:r,headDim:a}=e,i=s.of(t,"attention.o_proj.weigh\
t");return Array.from({length:r},(h,c)=>Float32Array.from({length:n},(d,u)=>{let m=0;for(let f=c*a;f<(c+1)*a;f+=1)m+=i[u*r*a+f]*o[f];return m}))}function as(s){
let{model:t,layer:e,token:o,settings:n}=s,{width:r,heads:a,headDim:i,hidden:h}=s.sizes,c=s.after.layers[e],d=v=>t.of(e,v),u=(v,C=r)=>Ct(v,o,C),[m,f,w]=[u(c.input),
u(c.middle),u(c.active,h)],[p,g]=[u(c.attention),u(c.concatenated,a*i)],y=`${r} = d_model`,k=u(s.after.embedding),T=e?"embedding + what earlier layers added = ":
"",M=[{name:e?`vector that enters layer ${e}`:`embedding of “${s.word(o)}”`,symbol:"x",shape:y,values:m,formula:v=>e?`${T}${$(k[v])} + ${$(m[v]-k[v])}`:`row\
 ${s.before.ids[o]} of the embedding table, column ${v}`},{name:"the same, normalized",symbol:"x̂",shape:y,values:u(c.normed),formula:rs(m,d("attention_norm.we\
ight"),d("attention_norm.bias"))}],E=co(s,g),b=E.flatMap(v=>[...v]).reduce((v,C)=>Math.max(v,Math.abs(C)),0),R=E.map((v,C)=>({name:`what L${e}H${C} adds`,symbol:`\
L${e}H${C} adds`,shape:y,values:v,largest:b,formula:V=>{let x=d("attention.o_proj.weight").subarray(V*a*i,(V+1)*a*i),_=P=>P.subarray(C*i,(C+1)*i);return`row ${V}\
 of W_O, columns ${C*i} to ${(C+1)*i-1} (counted from 0), times the output of L${e}H${C} = `+pt(Et(_(x),0,_(g),i))}})),L=[{name:"outputs of all heads, side by s\
ide",symbol:"concatenation",shape:`${a*i} = ${a} heads × d_k`,values:g,breaks:Array.from({length:a-1},(v,C)=>(C+1)*i),formula:v=>{let C=Math.floor(v/i),V=u(c.outputs,
a*i)[v];return`number ${v%i} of L${e}H${C}'s output, times its strength: ${$(V)} · ${$(n[e].heads[C].scale)}`}}],z=[{name:"mixed by W_O: the sum of what the he\
ads add, and a bias",symbol:"mixed",shape:y,values:p,formula:v=>{let C=E.map((x,_)=>`${$(x[v])} from L${e}H${_}`).join(" + "),V=$(d("attention.o_proj.bias")[v]);
return`row ${v} of W_O (counted from 0) times the concatenation + bias = ${C} + ${V}`}},{name:"added to the vector that entered",symbol:"residual",shape:y,values:f,
formula:v=>`x + mixed = ${$(m[v])} + ${$(p[v])}`}],K=[{name:"hidden layer",symbol:"hidden",shape:String(h),values:w,formula:v=>`GELU(row ${v} of W_up times the \
normalized residual + bias) = GELU(${$(u(c.up,h)[v])})`},{name:`vector that leaves layer ${e}`,symbol:"out",shape:y,values:u(c.output),formula:v=>`residual + W_\
down · hidden + bias = ${$(f[v])} + ${$(u(c.down)[v])}`}];return{before:M,concatenated:L,shares:R,after:z,alone:K}}function is(s,t){let{model:e,layer:o,token:n,
sizes:r}=s,{width:a,heads:i,headDim:h,rotaryDim:c}=r,d=s.settings[o],u=s.after.layers[o],m=s.tokens.length,f=x=>e.of(o,`attention.${x}`),w=(x,_=n)=>{let P=_*i*h+
t*h;return x.subarray(P,P+h)},p=Ct(u.normed,n,a),g=`${h} = d_k`,y=i/d.kvHeads>1?`, the mean of ${i/d.kvHeads} heads`:"",k=(x,_)=>P=>{let Pt=t*h+P,Xs=f(`${x}_pro\
j.bias`)[Pt],Zs=pt(Et(f(`${x}_proj.weight`),Pt,p,a),Xs),to=_&&P<c?`, then rotated by the position ${n} together with number ${(P+c/2)%c}`:"";return`W_${x.toUpperCase()}\
[${P}] · x̂ + bias = ${Zs}${to}${x==="q"?"":y}`},T=x=>x.subarray(n*m,n*m+n+1),[A,M]=[T(u.scores[t]),T(u.weights[t])],E=Lt(d).find(x=>x.includes(t))??[t],b=E.length*
h,R=(x,_)=>{let P=_*i*h+E[0]*h;return x.subarray(P,P+b)},L=x=>`“${s.word(x)}”`,z=A.reduce((x,_)=>Math.max(x,_),-1/0),K=A.reduce((x,_)=>x+Math.exp(_-z),0),v=d.
merged?null:d.heads[t].pattern,{scale:C}=d.heads[t],V=C===1?"":`; times its strength ${$(C)} in the concatenation`;return[{name:"query q",symbol:"q",shape:g,values:w(
u.q),formula:k("q",!0)},{name:"key k",symbol:"k",shape:g,values:w(u.k),formula:k("k",!0)},{name:"value v",symbol:"v",shape:g,values:w(u.v),formula:k("v",!1)},{name:"\
scores q · k / √d",symbol:"score",shape:`${n+1} words so far`,values:A,label:L,formula:x=>`q · k / √${b} = (${pt(Et(R(u.k,x),0,R(u.q,n),b))}) / ${$(Math.sqrt(
b))}`},{name:"weights: softmax of the scores",symbol:"weight",shape:`${n+1}, sum 1`,values:M,label:L,positive:!0,formula:x=>v?`set by hand: ${v}`:`e^(score − la\
rgest) / sum = e^(${$(A[x])} − ${$(z)}) / ${$(K)} = ${$(Math.exp(A[x]-z))} / ${$(K)}`},{name:"output: Σ weight · value",symbol:"output",shape:g,values:w(u.outputs),
formula:x=>{let _=Array.from(M,(P,Pt)=>[P,w(u.v,Pt)[x]]);return`Σ weight · v[${x}] = ${pt(_)}${V}`}}]}function hs(s){let{model:t,token:e,after:o}=s,{width:n,words:r,
layers:a}=s.sizes,i=Ct(o.layers[a-1].output,e,n),h=Ct(o.normed,e,n),[c,d]=[o.logits,o.probabilities].map(p=>Ct(p,e,r)),u=c.reduce((p,g)=>Math.max(p,g),-1/0),m=c.
reduce((p,g)=>p+Math.exp(g-u),0),f=p=>`“${s.data.words[p]}”`,w=t.weights["words.weight"];return[{name:"last vector, normalized",symbol:"y",shape:`${n} = d_m\
odel`,values:h,formula:rs(i,t.weights["norm.weight"],t.weights["norm.bias"])},{name:"score of every word (its logit)",symbol:"score",shape:`${r} words`,values:c,
label:f,formula:p=>`embedding of ${f(p)} · y = ${pt(Et(w,p,h,n))}`},{name:"probability that the word comes next",symbol:"probability",shape:`${r}, sum 1`,values:d,
label:f,positive:!0,formula:p=>`e^(score − largest) / sum = ${$(Math.exp(c[p]-u))} / ${$(m)}`}]}function H(s,{layers:t,heads:e}){let o=/^L(\d+)H(\d+)$/.exec(s);if(!o)return null;let[n,r]=[Number(o[1]),Number(o[2])];return n<t&&r<e?[n,r]:null}var q=(s,t)=>`\
L${s}H${t}`,$e=s=>Array.from({length:s},(t,e)=>s-e).filter(t=>s%t===0),ft=s=>s.map(t=>({...t,heads:t.heads.map(e=>({...e}))}));function Me(s){let t={scale:[],pattern:[],
merge:[],kv:[]};s.forEach(({heads:o,merged:n,kvHeads:r},a)=>{o.forEach(({scale:i,pattern:h},c)=>{i!==1&&t.scale.push(`${q(a,c)}:${Number(i.toFixed(2))}`),h&&t.pattern.
push(`${q(a,c)}:${h}`)}),n&&t.merge.push(String(a)),r!==o.length&&t.kv.push(`${a}:${r}`)});let e=Object.entries(t).map(([o,n])=>[o,n.join(",")]);return Object.fromEntries(
e.filter(([,o])=>o))}function ls(s,t){let e=N(t),o=n=>(s[n]??"").split(",").map(r=>[...r.split(":"),"",""].slice(0,2));for(let[n,r]of o("scale")){let a=H(n,t),i=Number(
r);a&&r&&i>=0&&i<=1&&(e[a[0]].heads[a[1]].scale=i)}for(let[n,r]of o("pattern")){let a=H(n,t),i=St.find(h=>h===r);a&&i&&(e[a[0]].heads[a[1]].pattern=i)}for(let[n]of o(
"merge"))/^\d+$/.test(n)&&e[Number(n)]&&(e[Number(n)].merged=!0);for(let[n,r]of o("kv"))!/^\d+$/.test(n)||!e[Number(n)]||$e(t.heads).includes(Number(r))&&(e[Number(
n)].kvHeads=Number(r));return e}var F=s=>new URLSearchParams(Me(s)).toString(),cs=s=>s.flatMap(({heads:t},e)=>t.flatMap(({scale:o,pattern:n},r)=>o!==1||n?[q(e,r)]:
[])),ds=s=>s.flatMap(({heads:t},e)=>t.flatMap(({scale:o},n)=>o===0?[q(e,n)]:[]));function uo({heads:s,merged:t,kvHeads:e}){let o=s.length/e,r=Array.from({length:e},
(a,i)=>s.slice(i*o,(i+1)*o)).filter(a=>a.some(({scale:i})=>i>0)).length;return t&&r?e:r}var qt=(s,{headDim:t})=>s.reduce((e,o)=>e+2*uo(o)*t*2,0);var Nt=Array(3).fill("whale key fat Ben men apple opened Kim today").join(" "),wt="<past> <sea> the ships drifted . <now> <town> the doors behind the house",O=(s,t)=>s.
card.heads[t]??[],gt=()=>q(0,0),yt=s=>H(O(s,"induction")[0]??"",s.sizes)?.[0]??0,Te=s=>s.length>1?`${s.slice(0,-1).join(", ")} and ${s.at(-1)}`:s.join(""),mo=["\
No","One","Two","Three","Four","Five","Six","Seven","Eight","Nine"],Gt=s=>mo[s]??String(s),G=(s,t=0)=>`${(100*s).toFixed(t)} %`,it=(s,t)=>s.changedHeads.every(
e=>t.includes(e))&&s.settings.every(({merged:e,kvHeads:o,heads:n})=>!e&&o===n.length),Ot=s=>s.off.length===1&&it(s,s.off),Ae=(s,t)=>s.row("after").reduce((e,o,n)=>e+
(t(n)?o:0),0),Kt=s=>s.tokens.length-1,Ee=s=>s.token===Kt(s);function Se(s,t){let e=s.row("before",t,Kt(s));return s.tokens.flatMap((n,r)=>s.isMark(r)?[r]:[]).slice(
-2).reduce((n,r)=>n+e[r],0)}var us=(s,t)=>Array.from(t,(e,o)=>t.slice(0,o)+t.slice(o+1)).includes(s);function ms(s,t){let e=s.tokenizer.read(t),o=s.tokens.flatMap(
({id:n},r)=>n===e[r]?.id?[]:[r]);return s.tokens.length===e.length&&o.length===1&&s.isMark(o[0])}function bt(s,t,e,o,n=1){let r=Kt(s);return s.probability(t,e,r)>
n*s.probability(t,o,r)}var ps=s=>s.data.words[s.guesses("after")[Kt(s)]];function Vt(s,t){let e=N(s.sizes);return e[t].kvHeads=Math.max(1,s.sizes.heads/2),e}var fs=20,po=28,fo=26,Yt=class{constructor(t){this.inspect=t,this.vector=null,this.cursor=0,this.width=0,this.height=fs,this.type=1,this.caption=l("span",{}),this.
shape=l("small",{class:"shape"}),this.canvas=l("canvas",{class:"cells",tabindex:"0",role:"slider","aria-valuemin":0}),this.room=l("div",{class:"striproom"},this.
canvas),this.box=l("div",{class:"vector"},l("div",{class:"vectortop"},this.caption,this.shape),this.room),this.canvas.addEventListener("pointermove",e=>this.point(
e)),this.canvas.addEventListener("pointerdown",e=>this.point(e)),this.canvas.addEventListener("focus",()=>this.move(this.cursor)),this.canvas.addEventListener("\
keydown",e=>this.onKey(e))}show(t){this.vector=t,this.cursor=Math.min(this.cursor,t.values.length-1),this.caption.textContent=t.name,this.shape.textContent=t.shape,
this.canvas.setAttribute("aria-label",`${t.name}, ${t.shape}`),this.canvas.setAttribute("aria-valuemax",String(t.values.length-1)),this.announce()}announce(){let{
vector:t,cursor:e}=this;t&&(this.canvas.setAttribute("aria-valuenow",String(e)),this.canvas.setAttribute("aria-valuetext",`${Le(t,e)}: ${J(t.values[e])}`))}draw(t,e=this.
type){let{vector:o}=this;if(!o||t<1)return;this.type=e;let n=o.values.length;this.width=Math.min(t,e*fo*n),this.height=e*(matchMedia("(pointer: coarse)").matches?
po:fs);let{height:r}=this,a=B(this.canvas,this.width,r),i=this.width/n,h=Math.max(1e-9,o.largest??Math.max(...Array.from(o.values,Math.abs)));for(let c=0;c<n;c+=
1){let d=o.values[c];a.fillStyle=o.positive?ye(ge(),Math.sqrt(Math.max(0,d))):ye(Xe(),.5+d/h/2),a.fillRect(c*i,0,i-(i>5?1:0),r)}a.fillStyle=D("--ink");for(let c of o.
breaks??[])a.fillRect(c*i-1,0,1.5,r);(document.activeElement===this.canvas||this.marked)&&this.outline()}marked=!1;outline(){let t=U(this.canvas),e=this.width/(this.
vector?.values.length??1);t.strokeStyle=D("--mark"),t.lineWidth=2,t.strokeRect(this.cursor*e+1,1,Math.max(2,e-2),this.height-2)}point(t){if(!this.vector)return;
let[e]=ot(t,this.canvas);this.move(Math.floor(e/this.width*this.vector.values.length))}onKey(t){let e=this.vector?.values.length??1,[o,n]=[this.cursor-1,this.cursor+
1],r={ArrowLeft:o,ArrowDown:o,ArrowRight:n,ArrowUp:n,Home:0,End:e-1}[t.key];r!==void 0&&(t.preventDefault(),this.move(r))}move(t){let{vector:e}=this;e&&(this.cursor=
Math.max(0,Math.min(e.values.length-1,t)),this.announce(),this.inspect(e,this.cursor,this))}},Le=({symbol:s,label:t},e)=>t?`${s} of ${t(e)}`:`${s}[${e}]`;var Qt=class{constructor(t,e){this.session=t,this.title=l("h2",{}),this.layers=l("div",{class:"layertabs",role:"group","aria-label":"layer"});for(let o=0;o<t.sizes.
layers;o+=1)this.layers.append(l("button",{type:"button",onclick:()=>e(o)},`Layer ${o}`));this.body=l("div",{class:"steps-of"}),this.value=l("b",{}),this.formula=
l("span",{}),this.readout=l("div",{class:"readout",id:"readout","aria-live":"polite"},this.value,this.formula),this.box=l("section",{class:"computation","aria-l\
abel":"the computation"},l("div",{class:"inputtop"},this.title,S("the computation"),this.layers),this.body,this.readout),this.strips=[],this.built="",this.marked=
null,this.clearReadout()}clearReadout(){this.readout.classList.remove("on"),this.value.textContent="",this.formula.textContent="Point at any cell, tap it, or re\
ach it with Tab and the arrow keys: its value and its formula are shown here."}inspect(t,e,o){this.readout.classList.add("on"),this.value.textContent=`${Le(t,e)}\
 = ${$(t.values[e])}`,this.formula.textContent=`= ${t.formula(e)}`;let n=this.marked;this.marked=o,n&&n!==o&&(n.marked=!1,n.draw(n.width)),o.marked=!0,o.draw(o.
width)}update(){let{session:t}=this,{layer:e,token:o,sizes:n}=t;this.title.textContent=`The computation for “${t.word(o)}”`,[...this.layers.children].forEach(
(d,u)=>d.setAttribute("aria-pressed",String(u===e)));let r=as(t),a=Array.from({length:n.heads},(d,u)=>is(t,u)),i=[r.before,...a,r.concatenated,r.shares,r.after,
r.alone];i.push(hs(t));let{merged:h}=t.settings[e],c=`${e} ${h}`;this.built!==c&&(this.build(i,h),this.built=c),i.flat().forEach((d,u)=>this.strips[u].show(d)),
this.sizesNote.textContent=wo(t),this.marked?.vector&&this.marked.move(this.marked.cursor),this.draw()}sizesNote=l("p",{class:"dim"});build(t,e){let{layer:o,sizes:n}=this.
session,{width:r,heads:a,headDim:i,words:h}=n;this.strips=[],this.marked=null,this.clearReadout();let c=t.map(M=>M.map(()=>{let E=new Yt((...b)=>this.inspect(...b));
return this.strips.push(E),E.box})),d=c.splice(1,a),[u,m,f,w,p,g]=c,y=d.map((M,E)=>l("div",{class:"headcard"},l("h4",{},`L${o}H${E}`),...M)),k=n.layers-1-o,T=`${Gt(
k)} more layer${k>1?"s do":" does"} the same with this vector. Then: the `,A=[zt("The vector of the word ","embedding",`A word is a vector of ${r} numbers, one \
cell each. Normalized, all words have the same scale: this is what the heads read.`,...u),zt(e?"One head: the same scores for all four parts ":"Each head compar\
es, weighs and mixes ","query, key, value","The query of this word is multiplied with the key of every word so far: the scores. Softmax turns scores into weight\
s that add up to 1. The output is the sum of the values of these words, each times its weight.",l("div",{class:"headcards"},...y)),zt("All heads together ","W_O",
`The ${a} outputs are put side by side. The matrix W_O has ${r} rows and ${a*i} columns, ${i} for each head: a head's output times its columns is what this head\
 adds to the word. A head that is off adds nothing.`,...m,l("div",{class:"headcards shares"},...f),...w),zt("This word alone ","hidden layer","Two more matrices\
 work on this vector without looking at other words.",...p),zt(`${k?T:"The "}next word `,"next word",`The last vector is multiplied with the embedding of each o\
f the ${h} words: the score of this word. Softmax turns scores into probabilities.`,...g)];this.body.replaceChildren(this.sizesNote,l("ol",{class:"computing"},...A))}draw(){
let t=this.strips.map(({room:o})=>o.clientWidth),e=tt();this.strips.forEach((o,n)=>o.draw(t[n],e))}get inspected(){let t=this.marked;return t?.vector?J(t.vector.
values[t.cursor]):""}},zt=(s,t,e,...o)=>l("li",{},l("h3",{},s,S(t)),l("p",{class:"dim explained"},e),...o);function wo({tokens:s,sizes:t}){let{width:e,heads:o,headDim:n}=t,
r=s.length;return`${r} words × d_model ${e} → ${o} heads × d_k ${n} → concatenation ${r} × ${o*n} → W_O (${e} × ${o*n}) → ${r} × ${e}`}var go=2e3;function ws(s){if(location.protocol==="about:")return null;let t=l("button",{type:"button",id:"copylink"},"Copy link"),e=l("input",{type:"text",readonly:!0,
hidden:!0,"aria-label":"link to this state"});e.addEventListener("focus",()=>e.select()),e.addEventListener("blur",()=>e.hidden=!0);let o=0;return t.addEventListener(
"click",async()=>{if(s(),!await yo(location.href)){e.value=location.href,e.hidden=!1,e.focus(),Y("Copy the link from the field.");return}t.textContent="Copied",
Y("Link copied."),clearTimeout(o),o=window.setTimeout(()=>t.textContent="Copy link",go)}),l("span",{class:"copylink"},e,t)}async function yo(s){try{return await navigator.
clipboard.writeText(s),!0}catch{return!1}}Ye({head:"From every word, a head looks at this word and earlier ones and takes information from them. A layer has several heads, and each looks at different wo\
rds. L1H3 is head 3 of layer 1; both are counted from 0.","attention map":"One square per pair of words. Each row is a query, the word that looks; each column i\
s a key, a word that it looks at. The darker the square (on a dark page, the brighter), the larger the weight.",weight:"How much a word takes from a word that i\
t looks at, from 0 to 1. All weights from one word add up to 1. Colours show the square root of the weight, so small weights are visible: 0.25 has the colour ha\
lfway to 1.",kind:"What a head mostly does, such as looking at the previous word, measured on sample texts and on random words that repeat. A head that does not\
hing so clearly is named by what decides where it looks: position, word or match.",spread:"The head looks at many words about equally.",rest:"The head looks mos\
tly at the first word or at marks.",position:"The distance between two words decides where the head looks, not the words.",word:"Some words draw attention from \
every word.",match:"Both words decide: which word the head looks at depends on the word that asks.","the language":"The model knows a small invented language of\
 214 words. “<now> <town> the keys that the man sees are new .” is a sentence of it. <now> or <past> states the tense; <sea>, <farm> or <town> the place. A list\
 of words that repeats is also a text that the model can continue.","next word":"The model gives every word of its vocabulary a probability to come next. All pr\
obabilities add up to 1; the bars show the largest. The model computes a score for each word, its logit, and softmax turns scores into probabilities.","pattern \
by hand":"Replaces the weights of the head by fixed ones: from every word it looks at all words so far equally, only at the word before, or only at the first wo\
rd. The information that it takes from these words is still computed as trained.","one head":"Merges the heads of the layer into one that uses the same matrices\
 W_Q, W_K, W_V and W_O. Its query is the queries of all heads side by side, and its key their keys. Each pair of words has one score: the sum of the heads' prod\
ucts, divided by the root of the longer length. All parts of the vector get the same weights. Patterns set by hand do not apply.","keys/values":"How many sets o\
f keys and values the heads of this layer have. With fewer sets than heads, heads that are next to each other share the mean of theirs: grouped-query attention.\
 With one set it is multi-query attention.","mean loss":"How badly the model predicts the sample texts: the mean of −log(probability of the word that really cam\
e next), in nats. 0 means that every word was certain; guessing at random among 214 words has a loss of 5.4. Lower is better.","KV cache":"The memory for one wo\
rd while the model writes text: its key and value, for every set of every layer, two bytes per number. It is smaller when heads share keys and values. A set tha\
t no head reads, because they are off, is not counted.","words copied":"In a text that repeats itself: how many of the words after the first round the model pre\
dicts correctly. The first word of the second round is not counted.",gradient:"The slopes of the loss on this text, one for every number in W_Q. Training moves \
W_Q against them. The table shows the length of this vector: a large value means that training on this text would change the head strongly.","the computation":"\
Every number between the chosen word and the word after it, in one layer. d_model is the length of a word's vector; d_k is the length of the query, the key and \
the value of a head. Blue is below zero, orange above. Weights and probabilities are shown by their square root.",embedding:"The vector that stands for a word: \
a row of a table that the model has learned. Each layer adds to it. Normalized: shifted and scaled to mean 0 and standard deviation 1, then multiplied by learne\
d weights.","query, key, value":"Three vectors that each head computes for every word, with the matrices W_Q, W_K and W_V. The query of the chosen word is multi\
plied with the key of every word so far: each product is a score. Softmax turns the scores into weights that add up to 1. The output is the sum of the values, e\
ach times its weight.",W_O:"A matrix that combines the heads. Each head writes a short vector; side by side they are the concatenation. W_O turns the concatenat\
ion into one vector of length d_model: each of its numbers is a weighted sum over the outputs of all heads. This vector is added to that of the word (the residu\
al connection), so the next layer gets both. Point at a cell of “mixed by W_O” to see how much each head contributes.","hidden layer":"After the heads, each\
 vector is processed without looking at other words (the MLP). A matrix makes a longer vector, GELU sets most of its negative numbers to nearly 0, and a second \
matrix makes a vector of length d_model. This is added, too."});function gs(s,t,e,o){let n=new Int32Array(o+1);for(let r=0;r<=o;r+=1)n[r]=Math.min(e,Math.floor(s+r/o*t+1e-9));return n}function kt({coded:s,keys:t,queries:e},o,n,r){
let a=Ze(),i=new ImageData(n,r),h=new Uint32Array(i.data.buffer),c=gs(o.x,o.w,t,n),d=gs(o.y,o.h,e,r),u=new Uint8Array(n),m=-1;for(let f=0;f<r;f+=1){let[w,p]=[d[f],
Math.max(d[f]+1,d[f+1])],g=w===m&&p===w+1,y=f*n;if(g){h.copyWithin(y,y-n,y);continue}u.fill(0);for(let k=w;k<p&&k<e;k+=1)for(let T=0,A=k*t;T<n;T+=1){let M=Math.
min(t,Math.max(c[T]+1,c[T+1])),E=u[T];for(let b=c[T];b<M;b+=1)s[A+b]>E&&(E=s[A+b]);u[T]=E}m=p===w+1?w:-1;for(let k=0;k<n;k+=1)h[y+k]=a[u[k]]}return i}function ys(s,t,e,o=()=>!0){let n=[];for(let r=0;r<s.length;r+=1)s[r]>=e&&o(r)&&n.push(r);return n.sort((r,a)=>s[a]-s[r]).slice(0,t)}function et(s,...t){let e=[...s.querySelectorAll("button")].findIndex(o=>o===document.activeElement);s.replaceChildren(...t),e>=0&&s.querySelectorAll("button")[e]?.
focus()}var bo=/<[\p{L}\p{N}_]+>|[\p{L}\p{N}_]+|[^\p{L}\p{N}_\s]/gu,[ko,bs,ks]=["<pad>","<s>","<unk>"],_t=s=>s!==ko&&s!==bs&&s!==ks,vo=s=>s.slice(0,1).toUpperCase()+s.slice(
1).toLowerCase(),Jt=class{constructor(t){this.words=t,this.ids=new Map(t.map((e,o)=>[e,o])),this.begin=this.ids.get(bs)??0,this.unknown=this.ids.get(ks)??0}idOf(t){
return this.ids.get(t)??this.ids.get(t.toLowerCase())??this.ids.get(vo(t))}read(t){let o=(t.match(bo)??[]).map(n=>{let r=this.idOf(n);return{id:r??this.unknown,
typed:n,known:r!==void 0}});return[{id:this.begin,typed:"",known:!0},...o]}completions(t,e){let o=t.toLowerCase(),n=this.words.filter(i=>i.toLowerCase().startsWith(
o)&&i.toLowerCase()!==o),[r,a]=[!0,!1].map(i=>n.filter(h=>h.startsWith(t)===i));return[...r,...a].filter(_t).slice(0,e)}similar(t,e){let o=i=>{let h=`^${i.toLowerCase()}\
$`;return new Set(Array.from({length:h.length-1},(c,d)=>h.slice(d,d+2)))},n=o(t.slice(0,40));return this.words.map(i=>{let h=o(i);return{other:i,score:2*[...h].
filter(c=>n.has(c)).length/(h.size+n.size)}}).filter(({score:i})=>i>.3).sort((i,h)=>h.score-i.score).slice(0,e).map(({other:i})=>i)}};var vs=8,xo=4,$o=/^[\p{C}\p{M}\p{Z}]$/u,xs=s=>$o.test(s)?`⟨U+${s.codePointAt(0)?.toString(16).toUpperCase().padStart(4,"0")}⟩`:s,Xt=class{constructor(t,e){this.
session=t,this.changed=e,this.field=l("textarea",{id:"text",rows:2,spellcheck:"false",autocapitalize:"off",autocomplete:"off","aria-label":"text that the model \
reads",oninput:()=>this.typed()}),this.suggestions=l("div",{class:"suggestions",role:"group","aria-label":"words to continue with"}),this.chips=l("div",{class:"\
chips",role:"group","aria-label":"words; choose the one to look at"}),this.notes=l("div",{class:"notes",role:"status"}),this.looks=l("span",{}),this.chips.addEventListener(
"click",r=>{let a=Q(r,".wordchip");a&&this.choose(Number(a.dataset.i))}),this.chips.addEventListener("keydown",r=>this.onKey(r)),this.suggestions.addEventListener(
"click",r=>{let a=Q(r,"button[data-word]");a&&this.complete(a.dataset.word??"")});let o=l("select",{id:"samples","aria-label":"sample texts"},l("option",{value:""},
"samples…"));t.data.samples.forEach((r,a)=>o.append(l("option",{value:a},rt(r,60)))),o.addEventListener("change",()=>{o.value&&this.setText(t.data.samples[Number(
o.value)]),o.value=""});let n=l("button",{type:"button",onclick:()=>this.setText("")},"Clear");this.box=l("section",{class:"input","aria-label":"words"},l("div",
{class:"inputtop"},l("h2",{},"Words"),S("the language"),o,n),this.field,this.suggestions,this.notes,this.chips,l("p",{class:"dim caption"},this.looks," ",S("wei\
ght")),l("p",{class:"dim caption"},"Below each word: the likeliest next word. ",S("next word"))),this.shown=[]}typed(){this.session.text=this.field.value,this.session.
chosen=null,this.changed()}setText(t){this.field.value=t,this.typed(),this.field.focus()}choose(t){this.session.chosen=t,this.changed()}onKey(t){let e={ArrowLeft:-1,
ArrowRight:1}[t.key],o=Q(t,".wordchip");if(!e||!o)return;t.preventDefault();let n=Number(o.dataset.i)+e;n<0||n>=this.session.tokens.length||(this.choose(n),this.
shown[n]?.focus())}complete(t){let e=this.partial(),o=this.field.value,n=e?o.slice(0,o.length-e.length):o&&!/\s$/.test(o)?`${o} `:o;this.setText(`${n}${t} `)}partial(){
let t=/[^\s]+$/.exec(this.field.value)?.[0]??"";return this.session.tokenizer.idOf(t)===void 0?t:""}update(){let{session:t}=this;this.field.value!==t.text&&(this.
field.value=t.text),this.drawSuggestions(),this.drawNotes(),this.drawChips(),this.looks.textContent=this.looksText()}looksText(){let{session:t}=this,e=t.row("af\
ter"),o=ys(e,xo,.005).map(a=>`${t.named(a)} ${I(e[a])}`),{merged:n}=t.settings[t.layer],r=n?`the merged head of layer ${t.layer}`:t.headName;return`Blue: from ${t.
named(t.token)}, ${r} looks at ${o.join(", ")}.`}drawSuggestions(){let{session:t}=this,e=this.partial(),o=e?t.tokenizer.completions(e,vs):[],n=o.length?o:this.likely(),
r=o.length?"complete: ":"next: ",a=n.map(i=>l("button",{type:"button",class:"suggestion","data-word":i},i));et(this.suggestions,l("span",{class:"dim"},r),...a)}likely(){
let{words:t}=this.session.data,e=(this.session.tokens.length-1)*t.length,o=this.session.after.probabilities.subarray(e,e+t.length);return t.map((r,a)=>a).sort((r,a)=>o[a]-
o[r]).map(r=>t[r]).filter(_t).slice(0,vs)}drawNotes(){let{session:t}=this,e=[...new Set(t.tokens.filter(({known:r})=>!r).map(({typed:r})=>r))],o=e.slice(0,4).map(
r=>{let a=t.tokenizer.similar(r,3),i=a.length?` Similar: ${a.join(", ")}.`:"",h=t.data.words.length;return l("p",{class:"note"},"“",l("span",{class:"word"},rt(
xs(r),30)),`” is not one of the ${h} words of this model, which reads it as <unk>.${i}`)}),n=e.length-o.length;if(n>0&&o.push(l("p",{class:"note"},`${dt(n,"mo\
re unknown word")}.`)),t.dropped){let r=`The model was trained on ${t.data.context} words at a time. The last ${dt(t.dropped,"word")} are not read.`;o.push(l("p",
{class:"note"},r))}this.notes.replaceChildren(...o)}drawChips(){let{session:t}=this,{words:e}=t.data,[o,n]=[t.guesses("before"),t.guesses("after")],r=t.row("aft\
er");for(;this.shown.length>t.tokens.length;)this.shown.pop()?.remove();t.tokens.forEach(({typed:a,known:i,id:h},c)=>{let d=this.shown[c];if(!d){let g=[l("span",
{class:"word"}),l("small",{})];d=l("button",{type:"button",class:"wordchip","data-i":c},...g),this.shown.push(d),this.chips.append(d)}let u=o[c]!==n[c],[m,f]=[...d.
children];m.textContent=i?e[h]:rt(xs(a),24),f.textContent=e[n[c]],f.classList.toggle("switched",u),d.classList.toggle("unknown",!i),d.classList.toggle("from",c===
t.token),d.tabIndex=c===t.token?0:-1,d.setAttribute("aria-pressed",String(c===t.token));let w=c<r.length?Math.round(72*r[c]**W.weight_exponent):0;d.style.backgroundColor=
w>2?`color-mix(in srgb, var(--shade) ${w}%, var(--soft))`:"";let p=u?`next word before: ${e[o[c]]}, now: `:"next word: ";d.setAttribute("aria-label",`${m.textContent}\
, ${p}${e[n[c]]}`),d.title=u?`next word before: ${e[o[c]]}, now: ${e[n[c]]}`:""})}};function $s(s,t,e){let{words:o,width:n,layers:r}=s.sizes,a=t.ids.length,i=t.probabilities.slice();for(let u=0;u+1<a;u+=1)i[u*o+t.ids[u+1]]-=1;i.fill(0,(a-1)*o);
for(let u=0;u<i.length;u+=1)i[u]/=Math.max(1,a-1);let h=t.layers[r-1].output,c=Ce(h,s.weights["norm.weight"],ht(i,s.weights["words.weight"],n)),d=[];for(let u=r-
1;u>=0;u-=1){let{gradient:m,dInput:f}=Mo(s,u,t.layers[u],e[u],c);d.unshift(m),c=f}return d}function ht(s,t,e){let o=t.length/e,n=new Float32Array(s.length/o*e);
for(let r=0,a=0;a<s.length;r+=1)for(let i=0;i<o;i+=1,a+=1){let h=s[a];if(h!==0)for(let c=0;c<e;c+=1)n[r*e+c]+=h*t[i*e+c]}return n}function Zt(s,t,e){let o=t.length/
e,n=s.length/o,r=new Float32Array(n*e);for(let a=0;a<o;a+=1)for(let i=0;i<n;i+=1){let h=s[a*n+i];if(h!==0)for(let c=0;c<e;c+=1)r[i*e+c]+=h*t[a*e+c]}return r}function Ce(s,t,e){
let o=t.length,n=new Float32Array(s.length);for(let r=0;r<s.length;r+=o){let{mean:a,scale:i}=At(s,r,o),[h,c]=[0,0];for(let d=0;d<o;d+=1){let u=e[r+d]*t[d];h+=u/
o,c+=u*(s[r+d]-a)*i/o}for(let d=0;d<o;d+=1){let u=(s[r+d]-a)*i;n[r+d]=i*(e[r+d]*t[d]-h-u*c)}}return n}function Mo(s,t,e,o,n){let{width:r,hidden:a,heads:i,headDim:h}=s.
sizes,c=b=>s.of(t,b),d=(...b)=>b[0].map((R,L)=>b.reduce((z,K)=>z+K[L],0)),m=ht(n,c("down.weight"),a).map((b,R)=>b*os(e.up[R])),f=ht(m,c("up.weight"),r),w=d(n,Ce(
e.middle,c("hidden_norm.weight"),f)),p=Zt(w,e.concatenated,i*h),g=ht(w,c("attention.o_proj.weight"),i*h),{dq:y,dk:k,dv:T}=To(s,e,o,g),A={q:mt(y,s.sizes,-1),k:mt(
k,s.sizes,-1),v:T},M={q:Zt(A.q,e.normed,r),k:Zt(A.k,e.normed,r),v:Zt(A.v,e.normed,r),o:p},E=d(ht(A.q,c("attention.q_proj.weight"),r),ht(A.k,c("attention.k_proj.\
weight"),r),ht(A.v,c("attention.v_proj.weight"),r));return{gradient:M,dInput:d(w,Ce(e.input,c("attention_norm.weight"),E))}}function To(s,t,e,o){let{heads:n,headDim:r}=s.
sizes,{q:a,k:i,v:h}=t,c=n*r,d=a.length/c,[u,m,f]=[new Float32Array(a.length),new Float32Array(a.length),new Float32Array(a.length)],w=new Float64Array(d);for(let p of Lt(
e)){let g=1/Math.sqrt(p.length*r),[y,k]=[p[0]*r,p.length*r],T=t.weights[p[0]],A=e.merged||e.heads[p[0]].pattern===null;for(let M=0;M<d;M+=1){let E=0;for(let b=0;b<=
M;b+=1){let R=T[M*d+b],L=0;for(let z=y;z<y+k;z+=1){let K=o[M*c+z]*e.heads[Math.floor(z/r)].scale;L+=K*h[b*c+z],f[b*c+z]+=R*K}w[b]=L,E+=R*L}if(A)for(let b=0;b<=M;b+=
1){let R=T[M*d+b]*(w[b]-E)*g;for(let L=y;L<y+k;L+=1)u[M*c+L]+=R*i[b*c+L],m[b*c+L]+=R*a[M*c+L]}}}return{dq:u,dk:s.shared(m,e.kvHeads),dv:s.shared(f,e.kvHeads)}}var te=new Map;function Ms(s){let e=["before","after"].filter(o=>te.get(o)?.run!==s.run(o));for(let o of e){let n=s.run(o),r=te.get("before"),a=o==="before"?N(s.
sizes):s.settings;te.set(o,r?.run===n?r:{run:n,layers:$s(s.model,n,a)})}return e.length>0}function Rt(s,t,e){let o=te.get(e);if(o?.run!==s.run(e))return null;let{
heads:n,headDim:r,width:a}=s.sizes,{q:i}=o.layers[t],h=r*a;return Array.from({length:n},(c,d)=>Math.hypot(...i.subarray(d*h,(d+1)*h)))}var Ts="<now> <town> the keys that the man near the door sees",[qe,As]=[["is","was"],["are","were"]],[ee,se]=[["is","are","opens","open","shines","shine"],["was",
"were","opened","shone"]];function Es(s){let t=s.tokens.length-1;return`Now the sums are: ${[se,ee].map(o=>`${o.join(", ")}: ${G(s.probability("after",o,t),1)}`).
join("; ")}.`}var Ss={id:"agreement",title:"Agreement over distance",about:()=>"In “the keys that the man near the door sees”, the verb that comes next belongs \
to “keys”, seven words back. Two other nouns, “man” and “door”, are closer.",text:Ts,head:gt,terms:["head","weight"],steps:[{text:()=>"Find a head t\
hat looks from the last word, “sees”, back to the subject, “keys”, with a weight above 0.5. Click the names of heads and read the line below the words.",
done:s=>Ee(s)&&!s.changed&&Ae(s,t=>s.word(t)==="keys")>.5},{text:()=>"Switch off one head (untick it) to make “is” the likeliest next word. If it does not work,\
 switch the head on again and try a different one.",done:s=>Ot(s)&&bt(s,"before",As,qe)&&qe.includes(ps(s))},{text:()=>"Switch it on again. Then delete one lett\
er of the text (in the field under “Words”) to make “is” at least twice as likely as “are”. All words must be words that the model knows.",rewrites:!0,
done:s=>!s.changed&&s.tokens.every(({known:t})=>t)&&us(s.text.trim(),Ts)&&bt(s,"after",qe,As,2)}],learned:s=>`${s.card.agreement} tells the verb whether its sub\
ject is one or many. It looks past the nouns in between, although they are closer. Its kind is “${s.card.kinds[s.card.agreement]}”, because a kind is what a h\
ead does in random words that repeat: a head may do two jobs.`},Ls={id:"delimiters",title:"Delimiters",about:()=>"Marks such as <now> and <town> open a sentence\
 and state its tense and place. Nearly every later word depends on them.",text:wt,head:gt,terms:["the language","weight"],steps:[{text:s=>`Find a head of layer ${s.
sizes.layers-1} that gives at least 80 % of its weight from the last word to the marks of this sentence, <now> and <town>.`,done:s=>Ee(s)&&s.layer===s.sizes.layers-
1&&!s.changed&&Se(s,s.headName)>=.8},{text:s=>"Switch off one such head and nothing else. The sentence still says <now>, but verbs of the past must become likel\
ier than verbs of the present. If they do not, try a different head that looks at the marks. "+Es(s),done:s=>Ot(s)&&Se(s,s.off[0])>=.8&&bt(s,"before",ee,se)&&bt(
s,"after",se,ee)},{text:s=>`Reset the heads. Then change one mark in the text (in the field under “Words”) to make verbs of the past at least twice as likely as\
 verbs of the present. ${Es(s)}`,rewrites:!0,done:s=>!s.changed&&ms(s,wt)&&bt(s,"after",se,ee,2)}],learned:s=>`${s.card.marks} reads the tense from the marks. I\
n models of human language, too, many heads look at delimiters, often because they have nothing else to do. Here the marks carry information.`},Cs={id:"inductio\
n",title:"Previous word and induction",about:()=>"The text repeats nine words three times. After the first round the model predicts every word: heads of two lay\
ers work together to copy.",text:Nt,head:s=>O(s,"previous")[0],terms:["words copied","attention map","pattern by hand"],steps:[{text:s=>`Choose an induction hea\
d (${Te(O(s,"induction"))}) and a word of the second round, such as the second “fat”. The head must give a weight above 0.5 to the word that followed the first \
“fat”: “Ben”.`,done:s=>{let{round:t,token:e}=s;return t>0&&e>=t&&e<2*t-1&&O(s,"induction").includes(s.headName)&&Ae(s,n=>n===e-t+2)>.5}},{text:()=>"Choo\
se the head of an earlier layer that looks at the previous word: the dark squares of its map are just below the diagonal.",done:s=>O(s,"previous").includes(s.headName)},
{text:()=>"Switch off this head and nothing else. The model must copy at most 70 % of the words: see “words copied”, under the bars of “Next word”.",done:s=>Ot(
s)&&O(s,"previous").includes(s.off[0])&&s.copied("after")<=.7*s.copied("before")},{text:()=>"Repair it by hand: switch the head on and choose “previous word” in\
 the list below the heads. The model must copy at least 90 % again.",done:s=>it(s,O(s,"previous"))&&O(s,"previous").some(t=>{let[e,o]=H(t,s.sizes)??[0,0];return s.
settings[e].heads[o].pattern==="previous"})&&s.copied("after")>=.9}],learned:()=>"The earlier head tells each word which word came before it. The induction head\
s use this: from the second “fat” they look for the word that came after a “fat”. For copying, only where the earlier head looks matters: your pattern restores \
it. It does not restore everything: the mean loss over the sample texts remains higher than that of the trained model. Without the pattern some copying survives\
, because a second head of that layer also looks back."},qs={id:"redundancy",title:"Redundancy",about:s=>`${Gt(O(s,"induction").length)} heads do the same: in a\
 repeated text, they look at the word that followed the earlier copy (${Te(O(s,"induction"))}). How many does the model need?`,text:Nt,head:s=>O(s,"induction")[0],
terms:["words copied"],steps:[{text:()=>"Switch off one induction head. The model must still copy 90 % of the words: see “words copied”, under the bars of “Next\
 word”.",done:s=>Ot(s)&&O(s,"induction").includes(s.off[0])&&s.copied("after")>=.9},{text:()=>"Switch off all induction heads and nothing else. The model copi\
es at most 10 %.",done:s=>{let t=O(s,"induction");return t.every(e=>s.off.includes(e))&&it(s,t)&&s.copied("after")<=.1}},{text:()=>"Find two induction heads th\
at are enough: with all others off, the model copies at least 95 %.",done:s=>{let t=O(s,"induction");return t.filter(o=>!s.changedHeads.includes(o)).length===2&&
s.off.length===t.length-2&&it(s,t)&&s.copied("after")>=.95}}],learned:()=>"A head may do necessary work although the model does not miss it, because other heads\
 do the same. To measure the importance of a group, remove the whole group: one head at a time is misleading."};function Ne(s){let t=N(s.sizes);return t[yt(s)].merged=!0,F(s.settings)===F(t)}function Ao(s){let t=s.settings.flatMap((e,o)=>{let n=s.lossGrowth(Vt(s,o));return n===
null?[]:[`layer ${o} ${G(n,1)}`]});return t.length?` Measured: ${t.join(", ")}.`:""}var Ns={id:"merge",title:"One head or many",about:()=>"A layer has four head\
s, and each has its own weights for every word. Merge them into one head with the same matrices: it has only one set of weights. When does that change the outpu\
t?",text:Nt,head:s=>O(s,"induction")[0],token:12,gradients:!0,terms:["query, key, value","W_O","one head","gradient"],steps:[{text:s=>`Merge the heads of layer ${yt(
s)}: tick “one head” above them, and change nothing else.`,done:Ne},{text:()=>"Choose a word, not the first, at which the output of the merged head differs \
by less than 15 % from that of the four heads. The differences are listed below, and the table shows where each head looks.",done:s=>Ne(s)&&s.token>0&&s.difference(
yt(s))<.15},{text:()=>"Now choose a word at which it differs by more than 50 %. Compare where the four heads look there.",done:s=>Ne(s)&&s.difference(yt(s))>.5},
{text:()=>"Separate the heads again (Undo or Reset). The table shows the gradient of W_Q: how strongly training on this text would change each head. Click the n\
ame of the head with the largest gradient in “Heads”.",done:s=>{let t=yt(s);if(s.changed||s.layer!==t)return!1;let e=Rt(s,t,"before");return e!==null&&e[s.head]===
Math.max(...e)}}],learned:()=>"One head and many agree only where all heads have the same weights, with nearly everything on one word or the same on every word.\
 At the first word this is always true: it can only look at itself. Elsewhere one pattern replaces several. The gradients differ, too: the W_Q of a separate hea\
d learns from the scores of this head. The merged head has one score for each pair of words; its gradient is a sum over all parts of the vector, and it changes \
every part of W_Q."},Os={id:"grouped",title:"Grouped-query attention",about:()=>"While a model writes text, it stores the key and the value of every earlier wor\
d: the KV cache. Heads that share keys and values need a smaller cache. Here they share the mean of theirs, and the model is not trained again.",text:wt,head:gt,
terms:["query, key, value","keys/values","KV cache","mean loss"],steps:[{text:()=>"Give one layer a single set of keys and values: choose 1 in its list “keys/va\
lues”. Watch the KV cache and the mean loss, under the bars of “Next word”.",done:s=>s.settings.some(({kvHeads:t})=>t===1)&&s.lossGrowth()!==null},{text:s=>`\
With 2 sets, heads share in pairs. Try this on each layer alone (Reset in between), wait for the loss each time, and end with the layer that raises the loss lea\
st.${Ao(s)}`,done:s=>{let t=s.settings.map((o,n)=>({key:F(Vt(s,n)),growth:s.lossGrowth(Vt(s,n))}));if(t.some(({growth:o})=>o===null))return!1;let e=t.reduce((o,n)=>(n.
growth??0)<(o.growth??0)?n:o);return F(s.settings)===e.key}},{text:s=>`Shrink the cache to a quarter, ${qt(N(s.sizes),s.sizes)/4} bytes per word, with every hea\
d on, and read how much the loss rises.`,done:s=>!s.off.length&&s.cacheBytes<=qt(N(s.sizes),s.sizes)/4&&s.lossGrowth()!==null}],learned:s=>{let t=s.lossGrowth();
return`With a quarter of the cache, the loss is${t===null?"":` ${G(t)}`} higher: heads with different jobs cannot share the keys that they were trained with. Re\
al models are trained with shared keys and values, or trained further after sharing.`}},Oe=(s,t)=>({text:()=>`Switch off ${s===1?"one head":`${s} heads in all`}\
. The mean loss may be at most ${G(t)} higher.`,done:e=>{let o=e.lossGrowth();return e.off.length>=s&&it(e,e.off)&&o!==null&&o<=t}}),zs={id:"pruning",title:"Pru\
ning",about:s=>`Remove heads one by one. After each change, the page measures the mean loss over ${s.data.samples.length} sample texts, and how much it would ri\
se without each further head.`,text:wt,head:gt,removals:!0,terms:["mean loss"],steps:[Oe(1,.02),Oe(3,.06),Oe(5,.15)],learned:()=>"Some heads cost little and som\
e cost much, and the costs do not add up: each removal changes those of the rest. This is why tools measure again after each removal. multihead prune also refit\
s the remaining heads."};var lt=[Ss,Ls,Cs,qs,Ns,Os,zs];function _s(s,t){s.lesson=t.id,s.text=t.text,s.chosen=t.token??null;let e=H(t.head(s)??"",s.sizes);e&&([s.layer,s.head]=e),s.settings=
N(s.sizes),s.forget()}var Rs=new Map(lt.map(({id:s,steps:t})=>[s,t.length]));var Eo=4,Is=s=>s?.toFixed(Eo)??"…",oe=class{constructor(t,e){this.session=t,this.changed=e,this.tabs=l("div",{class:"lessontabs",role:"group","aria-label":"le\
ssons"}),this.tabs.append(l("button",{type:"button","data-lesson":""},"Free play"));for(let{id:o,title:n}of lt)this.tabs.append(l("button",{type:"button","data-\
lesson":o},n));this.tabs.addEventListener("click",o=>{let n=Q(o,"button[data-lesson]");n&&this.open(n.dataset.lesson??"")}),this.panel=l("div",{class:"lesson",role:"\
group","aria-label":"the lesson",tabindex:"-1"}),this.bar=l("div",{class:"stepbar",hidden:!0}),new IntersectionObserver(([o])=>{this.bar.classList.toggle("neede\
d",!o.isIntersecting)}).observe(this.panel),this.box=l("section",{class:"lessons","aria-label":"lessons"},this.tabs,this.panel)}reached({id:t}){return this.session.
progress.get(t)??0}get lesson(){return lt.find(({id:t})=>t===this.session.lesson)??null}open(t){let e=lt.find(o=>o.id===t);e?(this.reached(e)===e.steps.length&&
this.session.progress.delete(t),_s(this.session,e)):this.session.lesson="",this.changed()}choose(t){this.session.chosen=t,this.changed()}check(){let{lesson:t,session:e}=this;
if(!t)return;let o=this.reached(t),n=t.steps[o];!n||!(n.rewrites||e.reads(t.text))||!n.done(e)||(e.progress.set(t.id,o+1),Y(o+1===t.steps.length?`Lesson done. ${t.
learned(e)}`:`Step ${o+1} done.`))}get removals(){return(this.lesson?.removals?this.withoutEach().flat():[]).filter(e=>e!==null)}withoutEach(){let{settings:t}=this.
session;return t.map(({heads:e},o)=>e.map(({scale:n},r)=>{if(n===0)return null;let a=ft(t);return a[o].heads[r].scale=0,a}))}measure(){this.lesson?.gradients&&Ms(
this.session)&&this.update()}update(){this.check();let{lesson:t,session:e}=this;for(let a of this.tabs.querySelectorAll("button")){let i=a.dataset.lesson??"";a.
setAttribute("aria-pressed",String(i===(t?.id??"")));let h=lt.find(c=>c.id===i);a.classList.toggle("done",h!==void 0&&this.reached(h)===h.steps.length)}if(this.
bar.hidden=!t,!t){et(this.panel,...this.welcome());return}let o=this.reached(t),n=o===t.steps.length,r=t.steps.map((a,i)=>{let h=i<o?"done":i===o?"now":"later",
c=l("span",{class:"sign","aria-label":h==="done"?"done":null},h==="done"?"✓":`${i+1}`);return l("li",{class:h,"aria-current":h==="now"?"step":null},c,l("span",
{},a.text(e)))});et(this.panel,l("p",{class:"lead"},t.about(e)),l("p",{class:"terms"},...t.terms.map(a=>l("span",{},a," ",S(a)))),l("ol",{class:"lessonsteps"},...r),
n?"":this.restoring(t,o),n?l("p",{class:"learned"},l("b",{},"Done. "),t.learned(e)):"",t.gradients?this.gradients():"",t.removals?this.removalTable():""),this.drawBar(
t,o)}restoring({text:t,steps:e},o){let{session:n}=this;if(n.reads(t))return"";let a=l("button",{type:"button",class:"restore",onclick:()=>{n.text=t,n.chosen=null,
this.panel.focus(),this.changed()}},"Restore the words"),i=e[o].rewrites?"":"This step needs the words that the lesson began with. ";return l("p",{class:"restor\
ing"},i,a)}welcome(){let{layers:t,heads:e}=this.session.sizes,o=lt[0],r=l("button",{type:"button",class:"primary",onclick:()=>{this.panel.focus(),this.open(o.id)}});
return r.append(`Start the first lesson: ${o.title}`),[l("p",{class:"lead"},`A small language model runs in this page. It reads the words below and predicts the\
 next one. Its ${t*e} heads decide which earlier words each word takes information from. Switch a head off, and see how the prediction changes.`),r]}drawBar(t,e){
let{steps:o}=t,n=e?l("b",{class:"passed"},`✓ Step ${e} done. `):"",r=e<o.length?l("span",{},l("b",{},`Step ${e+1} of ${o.length}: `),o[e].text(this.session)):
l("span",{},l("b",{},"The lesson is done.")),i=l("button",{type:"button","aria-label":"Show the lesson",onclick:()=>{this.panel.scrollIntoView({block:"nearest"}),
this.panel.focus({preventScroll:!0})}},"Lesson");et(this.bar,l("p",{},n,r),i)}removalTable(){let{session:t}=this,e=this.withoutEach(),o=e.map(a=>a.map(i=>i&&t.lossGrowth(
i))),n=Math.min(...o.flat().map(a=>a??1/0)),r=e.map((a,i)=>l("tr",{},...a.flatMap((h,c)=>{let d=o[i][c],u=h?d===null?"…":G(d,1):"off",m=d!==null&&d===n?l("b",
{},u):u;return[l("th",{scope:"row"},q(i,c)),l("td",{},m)]})));return l("div",{class:"beside"},l("p",{class:"dim"},"How much higher the mean loss is with one mor\
e head off (bold: least):"),l("table",{class:"gradients removals"},l("tbody",{},...r)))}gradients(){let{session:t}=this,{layer:e,sizes:o,token:n}=t,r=t.settings[e].
merged,[a,i]=[Rt(t,e,"before"),Rt(t,e,"after")],h=Array.from({length:o.heads},(m,f)=>{let w=t.row("before",q(e,f)),p=w.indexOf(w.reduce((k,T)=>Math.max(k,T))),g=`${t.
named(p)} ${I(w[p])}`,y=r?l("td",{},Is(i?.[f])):null;return l("tr",{},l("th",{scope:"row"},q(e,f)),l("td",{},g),l("td",{},Is(a?.[f])),y)}),c=l("tr",{},l("th",{scope:"\
col"},"head"),l("th",{scope:"col"},r?"looks most at, if separate":"looks most at"),l("th",{scope:"col"},"gradient of W_Q ",S("gradient")),r?l("th",{scope:"col"},
"its part of W_Q, merged"):null),d=r?`After ${t.named(n)}, the outputs of layer ${e} differ by ${G(t.difference(e),1)} from those of separate heads.`:`Layer ${e}\
 has separate heads.`,u=r?t.tokens.map((m,f)=>{let w=`${t.word(f)} ${G(t.difference(e,f),1)}`;return l("button",{type:"button",class:"suggestion",onclick:()=>this.
choose(f)},w)}):[];return l("div",{class:"beside"},l("p",{class:"apart"},d),r?l("p",{class:"dim"},"Difference after each word:"):null,r?l("div",{class:"suggesti\
ons"},...u):null,l("table",{class:"gradients"},l("thead",{},c),l("tbody",{},...h)))}};function So({q:s,k:t,dim:e},o,n,r,a){let i=o*e,h=i+e,c=n;for(;c+3<r;c+=4){let[d,u,m,f]=[0,0,0,0];for(let w=i,p=c*e;w<h;w+=1,p+=1){let g=s[w];d+=g*t[p],u+=g*t[p+
e],m+=g*t[p+2*e],f+=g*t[p+3*e]}a[c]=d,a[c+1]=u,a[c+2]=m,a[c+3]=f}for(;c<r;c+=1){let d=0;for(let u=i,m=c*e;u<h;u+=1,m+=1)d+=s[u]*t[m];a[c]=d}}function Ps(s,t,e){
let{bias:o,softcap:n,sink:r}=s,[a,i,h]=[s.first[t],s.end[t],s.first.length-1-t];e.fill(0),So(s,t,a,i,e);let c=r===void 0?-1/0:r;for(let u=a;u<i;u+=1)n!==void 0&&
(e[u]=n*Math.tanh(e[u]/n)),o&&(e[u]+=o[u+h]),e[u]>c&&(c=e[u]);let d=r===void 0?0:Math.exp(r-c);for(let u=a;u<i;u+=1)e[u]=Math.exp(e[u]-c),d+=e[u];for(let u=a;u<
i;u+=1)e[u]/=d;return e}var Lo=40,Co=()=>new Promise(s=>setTimeout(s)),ze=s=>255*Math.sqrt(s)+.5,vt=class s{constructor(t,e,o){this.name=t,this.queries=o.queries,this.keys=o.keys,this.
rows=e.sequences[o.rows],this.columns=e.sequences[o.columns],this.square=o.rows===o.columns,this.coded=null,this.qk=null,this.norms=null,this.completing=null}static async read(t,e,o,n,r){
let a=new s(t,e,o);return n.map!==void 0?a.coded=await nt(n.map):a.qk=await qo(n),o.norms!==null&&(a.norms=ct(await nt(o.norms)).subarray(r*o.keys,(r+1)*o.keys)),
a}static fromWeights(t,e,o){let n=e.shown.length,r={label:"",queries:n,keys:n,rows:0,columns:0,norms:null,heads:[]};return s.fromCodes(t,{sequences:[e]},r,Uint8Array.
from(o,ze))}static fromCodes(t,e,o,n){let r=new s(t,e,o);return r.coded=n,r}complete(){return this.completing??=this.computeAll(),this.completing}async computeAll(){
if(this.coded)return;let t=new Uint8Array(this.queries*this.keys),e=performance.now();for(let o=0;o<this.queries;o+=1){let n=this.row(o);for(let r=0,a=o*this.keys;r<
this.keys;r+=1)t[a+r]=ze(n[r]);performance.now()-e>Lo&&(await Co(),e=performance.now())}this.coded=t}get bytes(){return(this.coded?.length??0)+(this.qk?4*(this.
qk.q.length+this.qk.k.length):0)}row(t){let e=new Float32Array(this.keys);if(this.qk)return Ps(this.qk,t,e);if(this.coded)for(let o=0;o<this.keys;o+=1)e[o]=(this.
coded[t*this.keys+o]/255)**2;return e}column(t){let e=new Float32Array(this.queries),o=this.coded;if(o)for(let n=0;n<this.queries;n+=1)e[n]=(o[n*this.keys+t]/255)**
2;return e}weights(t,e){return t?this.row(e):this.column(e)}async preview(t){if(this.coded)return{coded:this.coded,queries:this.queries,keys:this.keys};let e=Math.
min(t,this.queries),o=new Uint8Array(e*this.keys);for(let n=0;n<e;n+=1){let r=this.row(Math.floor((n+.5)*this.queries/e));for(let a=0;a<this.keys;a+=1)o[n*this.
keys+a]=ze(r[a])}return{coded:o,queries:e,keys:this.keys}}reweighted(t,e){let o=t?this.norms:null,n=e&&this.columns.special.some(Boolean);if(!o&&!n)return this;
let r=new Float32Array(this.keys).fill(1);for(let i=0;i<this.keys;i+=1)o&&(r[i]=o[i]),n&&this.columns.special[i]&&(r[i]=0);let a=Object.create(this);return a.row=
i=>No(this.row(i),r),this.coded&&(a.coded=Oo(this.coded,this.queries,this.keys,r)),a}};async function qo(s){let{q:t,k:e,first:o,end:n,dim:r}=s,a=await Promise.all(
[t,e,o,n].map(nt)),i=s.wide?ct:jt;return{q:i(a[0]),k:i(a[1]),first:me(a[2]),end:me(a[3]),dim:r,bias:s.bias===void 0?null:ct(await nt(s.bias)),softcap:s.softcap,
sink:s.sink}}function No(s,t){let e=0;for(let o=0;o<s.length;o+=1)s[o]*=t[o],e+=s[o];if(e>0)for(let o=0;o<s.length;o+=1)s[o]/=e;return s}function Oo(s,t,e,o){let n=new Uint8Array(
s.length);for(let r=0;r<t;r+=1){let a=r*e,i=0;for(let h=0;h<e;h+=1)i+=s[a+h]**2*o[h];if(i!==0)for(let h=0;h<e;h+=1)n[a+h]=Math.round(s[a+h]*Math.sqrt(o[h]/i*255*
255))}return n}function _e(s){j("trouble").textContent=s,j("trouble").hidden=!s}async function zo(s,t){try{return await fetch(s,{...t,cache:"no-store"})}catch(e){throw Re(e)||
_e("The server does not answer. Is multihead serve still running?"),e}}async function _o(s,t,e){let o=Object.entries(t).map(([r,a])=>[r,String(a)]),n=await zo(`${s}\
?${new URLSearchParams(o)}`,{signal:e});if(!n.ok){let r=await n.text();throw _e(r),new Error(r)}return _e(""),n}async function ne(s,t,e){let o=await _o(s,t,e);return new Uint8Array(
await o.arrayBuffer())}var Re=s=>s instanceof DOMException&&s.name==="AbortError";var js=4096,Ro=256,Io=120,It=class s extends vt{constructor(t,e,o,n){super(t,e,o),this.where=n,this.lines=new Map,this.overview=null,this.latest=null,this.asking=
null,this.controller=null,this.timer=0,this.variants=new Map,this.source=[t,e,o]}complete(){return Promise.resolve()}get bytes(){return 4*this.keys*this.lines.size+
2e6}reweighted(t,e){if(!t&&!e)return this;let o=`${t} ${e}`,n=this.variants.get(o);if(!n){let r={...this.where,...t?{norm:1}:{},...e?{hide:1}:{}};n=new s(...this.
source,r),this.variants.set(o,n)}return n}weights(t,e){return this.lines.get(`${t?"row":"column"} ${e}`)??null}async fetchWeights(t,e){let o=this.weights(t,e);if(o)
return o;let n=t?"row":"column",r=ct(await ne(n,{...this.where,i:e}));return this.lines.size>=Ro&&this.lines.delete(this.lines.keys().next().value??""),this.lines.
set(`${n} ${e}`,r),r}picture(t,e,o,n){let[r,a]=[Math.floor(t.x),Math.floor(t.y)],i=Math.min(this.keys,Math.ceil(t.x+t.w-1e-9))-r,h=Math.min(this.queries,Math.ceil(
t.y+t.h-1e-9))-a,c={width:Math.min(i,e,js),height:Math.min(h,o,js)},d={x:r,y:a,w:i,h,...c},u=Object.values(d).join(" ");return this.latest?.key===u?this.latest:
this.overview?.key===u?this.overview:(this.asking!==u&&(this.cancel(),this.asking=u,this.timer=window.setTimeout(()=>this.fetchPicture(d,u,n),this.overview?Io:0)),
this.overview)}async fetchPicture(t,e,o){this.controller=new AbortController;try{let n=await ne("map",{...this.where,...t},this.controller.signal);this.latest={
key:e,part:t,coded:n,keys:t.width,queries:t.height},t.w===this.keys&&t.h===this.queries&&(this.overview=this.latest),this.asking=null,o()}catch(n){this.asking===
e&&(this.asking=null),Re(n)||Y(String(n))}}cancel(){clearTimeout(this.timer),this.controller?.abort(),this.asking=null}async preview(t){let[e,o]=[Math.min(t,this.
keys),Math.min(t,this.queries)],n={x:0,y:0,w:this.keys,h:this.queries,width:e,height:o,thin:1};return{coded:await ne("map",{...this.where,...n}),keys:e,queries:o}}};
function Ws({part:s,keys:t,queries:e},o){let[n,r]=[t/s.w,e/s.h];return{x:(o.x-s.x)*n,y:(o.y-s.y)*r,w:o.w*n,h:o.h*r}}var Po=104,jo=22,Fs=11,Wo=720,Hs=4,re=class{constructor({point:t,pick:e,drawn:o},n="token"){this.unit=n,this.point=t,this.pick=e,this.drawn=o,this.map=null,this.
window={x:0,y:0,w:1,h:1},this.mark={row:null,column:null},this.width=0,this.height=0,this.room=0,this.type=1,this.dragged=!1,this.painted=null,this.pointers=new Map,
this.canvas=l("canvas",{class:"map",role:"img",tabindex:"-1"}),this.box=l("div",{class:"mapbox"},this.canvas),this.canvas.addEventListener("wheel",r=>this.onWheel(
r),{passive:!1}),this.canvas.addEventListener("pointerdown",r=>this.onDown(r)),this.canvas.addEventListener("pointermove",r=>this.onMove(r)),this.canvas.addEventListener(
"pointerup",r=>this.onUp(r)),this.canvas.addEventListener("pointercancel",r=>this.pointers.delete(r.pointerId)),this.canvas.addEventListener("pointerleave",()=>this.
point(null)),this.canvas.addEventListener("dblclick",()=>this.showAll())}get labels(){return Math.round(Po*this.type)}get place(){return{left:this.labels,width:this.
width,window:this.window,type:this.type}}show(t){let e=this.map&&this.map.queries===t.queries&&this.map.keys===t.keys;this.map=t,e||(this.window={x:0,y:0,w:t.keys,
h:t.queries});let o=`${t.queries} queries down, ${t.keys} keys across`,n=`Attention map of ${t.name}: ${o}. The text below has the same weights.`;this.canvas.setAttribute(
"aria-label",n)}clear(){B(this.canvas,this.canvas.clientWidth,this.canvas.clientHeight)}showAll(){this.map&&(this.window={x:0,y:0,w:this.map.keys,h:this.map.queries},
this.draw())}zoom(t,e=this.width/2,o=this.height/2){let{map:n,window:r}=this;if(!n)return;let[a,i]=[r.x+e/this.width*r.w,r.y+o/this.height*r.h],h=Math.max(Math.
min(Hs,n.keys),Math.min(n.keys,r.w/t)),c=Math.max(Math.min(Hs,n.queries),Math.min(n.queries,r.h/t));this.window={w:h,h:c,x:a-e/this.width*h,y:i-o/this.height*c},
this.draw()}clampWindow(){let{map:t,window:e}=this;t&&(e.x=Math.max(0,Math.min(t.keys-e.w,e.x)),e.y=Math.max(0,Math.min(t.queries-e.h,e.y)))}onWheel(t){if(t.deltaY>
0&&this.window.w>=(this.map?.keys??0)&&!t.ctrlKey&&!t.metaKey)return;t.preventDefault();let[o,n]=ot(t,this.canvas);this.zoom(Math.exp(-t.deltaY/300),o-this.labels,
n-this.labels)}onDown(t){this.canvas.setPointerCapture(t.pointerId),this.pointers.set(t.pointerId,ot(t,this.canvas)),this.dragged=!1}onMove(t){let e=ot(t,this.canvas),
o=this.pointers.get(t.pointerId);if(!o){this.point(this.cellAt(e));return}let n=[...this.pointers].find(([r])=>r!==t.pointerId)?.[1];if(n){let r=h=>Math.hypot(h[0]-
n[0],h[1]-n[1]),[a,i]=[(e[0]+n[0])/2-this.labels,(e[1]+n[1])/2-this.labels];this.dragged=!0,this.zoom(r(e)/Math.max(1,r(o)),a,i)}else if(this.dragged||Math.hypot(
e[0]-o[0],e[1]-o[1])>4)this.dragged=!0,this.window.x-=(e[0]-o[0])/this.width*this.window.w,this.window.y-=(e[1]-o[1])/this.height*this.window.h,this.draw();else
return;this.pointers.set(t.pointerId,e)}onUp(t){if(this.pointers.delete(t.pointerId),this.dragged)return;let e=this.cellAt(ot(t,this.canvas));e&&this.pick(e)}cellAt([
t,e]){let{map:o,window:n}=this;if(!o||t<this.labels||e<this.labels)return null;let r=Math.floor(n.x+(t-this.labels)/this.width*n.w),a=Math.floor(n.y+(e-this.labels)/
this.height*n.h);return a>=0&&r>=0&&a<o.queries&&r<o.keys?[a,r]:null}observeRoom(){let t=()=>{let e=this.box.clientWidth;return e===this.room?!1:(this.room=e,this.
type=tt(),!0)};t(),new ResizeObserver(()=>t()&&this.draw()).observe(this.box)}draw(){let{map:t}=this;if(!t)return;this.clampWindow(),this.room||this.observeRoom(),
this.width=Math.max(80,Math.min(this.room||560,this.type*Wo)-this.labels),this.height=Math.max(80,Math.min(1.6*this.width,this.width*t.queries/t.keys));let e=B(
this.canvas,this.width+this.labels,this.height+this.labels),o=Math.round(this.labels*Tt()),n=this.paint(t);this.canvas.toggleAttribute("data-waiting",t instanceof
It&&t.asking!==null),n&&e.putImageData(n,o,o),this.drawFrame(e,t),this.drawMarks(e),this.drawn()}paint(t){let e=Tt(),[o,n]=[Math.round(this.width*e),Math.round(
this.height*e)],r=()=>this.box.isConnected&&this.draw(),a=t instanceof It?t.picture(this.window,o,n,r):null,i=t.coded??a?.coded;if(!i)return null;let h=[...Object.
values(this.window),o,n].join(" ");if(this.painted?.key!==h||this.painted.from!==i){let c=a??{coded:i,keys:t.keys,queries:t.queries},d=a?Ws(a,this.window):this.
window;this.painted={key:h,from:i,image:kt(c,d,o,n)}}return this.painted.image}drawFrame(t,e){let{window:o,width:n,height:r,labels:a,type:i,unit:h}=this,[c,d]=[
n/o.w,r/o.h];t.strokeStyle=D("--line"),t.strokeRect(a-.5,a-.5,n+1,r+1),t.font=`600 ${12*i}px ${Ht}`,t.fillStyle=D("--ink"),t.textBaseline="middle",t.textAlign="\
center",t.fillText(n<180*i?"key":`key: the ${h} looked at`,a+n/2,8*i);let u=r<180*i?"query":`query: the ${h} that looks`;be(t,u,8*i,a+r/2),t.textAlign="right";let m=(p,g,y)=>(t.
fillStyle=D(y?"--ink":g?"--faint":"--dim"),t.font=`${y?"600 ":""}${11*i}px ${Ht}`,Fo(t,p,a-(jo+8)*i)),f=Math.max(1,Math.ceil(i*Fs/d));for(let p=Math.ceil(o.y/f-
1e-9)*f;p<Math.min(e.queries,o.y+o.h);p+=f){let g=a+(p+.5-o.y)*d;g<a+2||g>a+r-2||t.fillText(m(e.rows.shown[p],e.rows.special[p],p===this.mark.row),a-6,g)}t.textAlign=
"left";let w=Math.max(1,Math.ceil(i*Fs/c));for(let p=Math.ceil(o.x/w-1e-9)*w;p<Math.min(e.keys,o.x+o.w);p+=w){let g=a+(p+.5-o.x)*c;if(g<a+2||g>a+n-2)continue;let y=m(
e.columns.shown[p],e.columns.special[p],p===this.mark.column);be(t,y,g,a-6)}}drawMarks(t){let{window:e,width:o,height:n,labels:r}=this,{row:a,column:i}=this.mark,
[h,c]=[o/e.w,n/e.h];t.save(),t.beginPath(),t.rect(r,r,o,n),t.clip(),t.strokeStyle=D("--mark"),t.lineWidth=1.5,a!==null&&t.strokeRect(r-2,r+(a-e.y)*c,o+4,Math.max(
2,c)),i!==null&&t.strokeRect(r+(i-e.x)*h,r-2,Math.max(2,h),n+4),t.restore()}savePng(){let{map:t}=this;if(!t)return;let e=l("canvas",{width:this.canvas.width,height:this.
canvas.height}),o=U(e);o.fillStyle=D("--paper"),o.fillRect(0,0,e.width,e.height),o.drawImage(this.canvas,0,0),e.toBlob(n=>n&&He(n,`${t.name}.png`))}};function Fo(s,t,e){
let o=rt(t,18);for(;o.length>2&&s.measureText(o).width>e;)o=`${Array.from(o).slice(0,-2).join("")}…`;return o}var Ho=["before","after"],Ie="Point at a square to read its weight; click it to choose its row.",Do=" Switching a head off changes the maps of later layers, not\
 its own.",ae=class{constructor(t,e,o="trained model",n="token"){this.read=e,this.names={before:o,after:"with your switches"},this.title=l("h2",{}),this.hint=Ie,
this.said=l("p",{class:"cellnote"}),this.panes=Ho.map(i=>{let h=u=>this.say(i,u),c=new re({point:h,pick:([u])=>t(u),drawn:()=>{}},n),d=l("h3",{},this.names[i]);
return{which:i,view:c,name:d,box:l("div",{class:"pane"},d,c.box)}});let[r,a]=this.panes;this.box=l("section",{class:"maps"},l("div",{class:"inputtop"},this.title,
S("attention map")),l("div",{class:"panes"},r.box,a.box),this.said)}update(t,e,o,n){this.title.textContent=`Where ${t} looks`,this.hint=o.after?Ie+Do:Ie;for(let{
which:r,view:a,box:i}of this.panes){let h=o[r];i.hidden=!h,h&&(a.show(h),a.canvas.setAttribute("aria-label",`Attention map of ${t}, ${this.names[r]}. ${n}`),a.mark=
{row:e,column:null},a.draw())}this.say("after",null)}say(t,e){this.said.textContent=e?this.read(t,e):this.hint}};var Uo=56,st=9,Ds=5,Pe=[[(s,t)=>+(t===s),"The diagonal: every word looks at itself."],[(s,t)=>+(t===Math.max(0,s-1)),"Just below the diagonal: at the previous w\
ord."],[(s,t)=>t===1&&s>0?.8:t===5&&s>4?.5:.02,"A column: many words look at the same word, such as a mark or a subject."],[(s,t)=>s<Ds?.03:+(t===s-Ds+1),"A dia\
gonal farther below: in a text that repeats, at the word that followed the earlier copy (induction)."],[s=>1/(s+1),"A triangle: at all words so far, about equal\
ly."]],ie=class{constructor(){this.icons=Pe.map(()=>l("canvas",{class:"thumb","aria-hidden":"true"})),this.box=l("div",{class:"pane mapguide"},l("h3",{},"How to\
 read it"),l("p",{},"Each row belongs to one word. Its squares show where the head looks from this word: the darker, the more weight. The weights of a row add u\
p to 1. Nothing is above the diagonal, because a word cannot look at later words."),l("ul",{},...Pe.map(([,t],e)=>l("li",{},this.icons[e],l("span",{},t)))),l("p",
{},"Each head in the list above has a small map of its own. Click one to see it here."))}draw(){if(this.box.hidden)return;let t=Math.round(Uo*tt()),e={x:0,y:0,w:st,
h:st};Pe.forEach(([o],n)=>{let r=Uint8Array.from({length:st*st},(h,c)=>{let[d,u]=[Math.floor(c/st),c%st];return u>d?0:255*Math.sqrt(o(d,u))}),a=this.icons[n];B(
a,t,t);let i=kt({coded:r,queries:st,keys:st},e,a.width,a.height);U(a).putImageData(i,0,0)})}};var he=class{constructor(t,e){this.session=t,this.pair=new ae(e,(o,n)=>this.read(o,n),"trained model","word"),this.guide=new ie,this.box=this.pair.box,this.box.
querySelector(".panes")?.append(this.guide.box)}update(){let{changed:t,headName:e,token:o}=this.session,n={before:this.map("before"),after:t?this.map("after"):null};
this.guide.box.hidden=t,this.guide.draw(),this.pair.update(e,o,n,"The computation below has its rows as numbers.")}map(t,e=this.session.layer,o=this.session.head){
let{session:n}=this,r={shown:n.tokens.map((a,i)=>n.word(i)),joined_to_previous:n.tokens.map(()=>!1),special:n.tokens.map((a,i)=>n.data.special.includes(n.word(i)))};
return vt.fromWeights(q(e,o),r,n.run(t).layers[e].weights[o])}picture(t,e){let o=this.session.tokens.length;return{coded:this.map("after",t,e).coded??new Uint8Array(
o*o),queries:o,keys:o}}read(t,e){let{session:o}=this;if(e[1]>e[0])return"A word cannot look at later words.";let n=o.row(t,o.headName,e[0])[e[1]],[r,a]=e.map(i=>`\
“${o.word(i)}”`);return`${r} looks at ${a} with weight ${I(n)}`}resize(){this.update()}};var Bo=24;function Gs(s,t,e="trained model"){return[...s.map(({word:n,before:r,after:a,actual:i})=>l("div",{class:i?"guess actual":"guess","data-word":n},l("spa\
n",{class:"guessed"},n,i?l("small",{}," (in the text)"):null),l("span",{class:"barpair"},Bs("before",r),t?Bs("after",a):null),l("span",{class:"chance"},Us(r),t?
l("b",{},Us(a)):null))),Go(t,e)]}var Go=(s,t)=>l("p",{class:"dim legendline"},l("span",{class:"swatch before"}),s?` ${t}`:` ${t}: no switch is changed`,s?l("spa\
n",{class:"swatch after"}):null,s?" with your switches":null);function Ks(s,t,e,o){let n=e.slice(0,Bo).map(({token:i,text:h})=>l("button",{type:"button",class:"\
suggestion",onclick:()=>o(i)},h)),r=e.length-n.length,a=r>0?l("span",{class:"dim"},` and ${r} more`):"";et(s,l("p",{},t),...n,a)}var Us=s=>s<.001?"< 0.1 %":xt(
s,s<.01?1:2);function Bs(s,t){let e=l("span",{class:`bar ${s}`});return e.style.width=`${Math.max(.5,100*t)}%`,e}var Vs=8,le=class{constructor(t,e){this.session=t,this.choose=e,this.title=l("h2",{}),this.bars=l("div",{class:"predictions"}),this.list=l("div",{class:"changes"}),
this.box=l("section",{class:"prediction","aria-label":"next word"},l("div",{class:"inputtop"},this.title,S("next word")),this.bars,this.list)}update(){let{session:t}=this,
{words:e}=t.data,o=t.token*e.length,[n,r]=[t.before,t.after].map(d=>d.probabilities.subarray(o,o+e.length)),a=e.map((d,u)=>u).sort((d,u)=>Math.max(n[u],r[u])-Math.
max(n[d],r[d])),i=t.tokens[t.token+1]?.id,h=a.slice(0,Vs);i!==void 0&&!h.includes(i)&&(h[Vs-1]=i),this.title.textContent=`Next word after “${t.word(t.token)}”`;
let c=h.map(d=>({word:e[d],before:n[d],after:r[d],actual:d===i}));this.bars.replaceChildren(...Gs(c,t.changed)),this.drawChanges()}drawChanges(){let{session:t}=this;
if(!t.changed){this.list.replaceChildren();return}let e=t.changedGuesses,[o,n]=[t.guesses("before"),t.guesses("after")],r=e.length?`Likeliest next word changed \
after ${e.length} of ${t.tokens.length} words:`:"The likeliest next word is the same everywhere.",{words:a}=t.data,i=e.map(h=>({token:h,text:`${t.word(h)}: ${a[o[h]]}\
 → ${a[n[h]]}`}));Ks(this.list,r,i,this.choose)}};var Ko=()=>new Promise(s=>setTimeout(s)),ce=class{constructor(t,e,o){this.session=t,this.done=e,this.more=o,this.turn=0;let{tokenizer:n,data:r}=t;this.texts=r.samples.
map(a=>n.read(a).map(({id:i})=>i))}async measure(){let{session:t}=this;this.turn+=1;let e=this.turn;for(let o of[void 0,ft(t.settings),...this.more()]){let n=o?
F(o):"";if(t.losses.has(n))continue;let[r,a]=[0,0];for(let i of this.texts){if(await Ko(),e!==this.turn)return;r+=Bt(t.model.run(i,o))*(i.length-1),a+=i.length-
1}t.losses.set(n,r/a),this.done()}}};var Vo=200,de=class{constructor(t,e,o){this.data=t,this.model=e,this.lessons=o,this.sizes=t.sizes,this.card=t.card,this.tokenizer=new Jt(t.words),this.text="",this.
chosen=null,this.layer=0,this.head=0,this.settings=N(this.sizes),this.lesson="",this.progress=new Map,this.past=[],this.future=[],this.gesture="",this.losses=new Map,
this.tokens=[],this.dropped=0,this.before=e.run([this.tokenizer.begin]),this.after=this.before,this.took=0,this.computed={text:"",settings:""}}compute(){let t=F(
this.settings);if(this.tokens.length&&this.computed.text===this.text&&this.computed.settings===t)return;let e=performance.now();if(!this.tokens.length||this.computed.
text!==this.text){let o=this.tokenizer.read(this.text);this.tokens=o.slice(0,this.data.context),this.dropped=o.length-this.tokens.length,this.before=this.model.
run(this.tokens.map(({id:n})=>n))}this.after=t?this.model.run(this.before.ids,this.settings):this.before,this.computed={text:this.text,settings:t},this.took=performance.
now()-e}get token(){return Math.min(this.chosen??1/0,this.tokens.length-1)}get headName(){return q(this.layer,this.head)}get changed(){return F(this.settings)!==
""}switch(t,e=""){let o=ft(this.settings);t(o),F(o)!==F(this.settings)&&((!e||e!==this.gesture)&&this.past.push(this.settings),this.past.length>Vo&&this.past.shift(),
this.gesture=e,this.future=[],this.settings=o)}undo(){this.step(this.past,this.future)}redo(){this.step(this.future,this.past)}step(t,e){let o=t.pop();o&&(e.push(
this.settings),this.settings=o,this.gesture="")}forget(){this.past=[],this.future=[],this.gesture=""}get hash(){let t=new URLSearchParams({text:this.text,head:this.
headName,...Me(this.settings)});return this.chosen!==null&&t.set("token",String(this.chosen)),this.lesson&&t.set("lesson",this.lesson),this.progress.size&&t.set(
"done",[...this.progress].map(([e,o])=>`${e}:${o}`).join(",")),`#${t}`}restore(t){let e=Object.fromEntries(new URLSearchParams(t.replace(/^#/,"")));e.text!==void 0&&
(this.text=e.text);let o=Number(e.token);this.chosen=e.token&&Number.isInteger(o)&&o>=0?o:null;let n=H(e.head??"",this.sizes);n&&([this.layer,this.head]=n),this.
settings=ls(e,this.sizes),this.lesson=this.lessons.has(e.lesson)?e.lesson:"",this.progress.clear();for(let r of(e.done??"").split(",")){let[,a,i]=/^([a-z]+):(\d{1,2})$/.
exec(r)??[],h=this.lessons.get(a);h!==void 0&&this.progress.set(a,Math.min(h,Number(i)))}}run(t){return this[t]}word(t){return this.data.words[this.tokens[t].id]}named(t){
let e=this.word(t);return this.tokens.filter((n,r)=>this.word(r)===e).length>1?`“${e}” (word ${t})`:`“${e}”`}isMark(t){let e=this.word(t);return _t(e)&&
this.data.special.includes(e)}reads(t){let e=this.tokenizer.read(t).map(({id:o})=>o);return e.length===this.tokens.length&&e.every((o,n)=>o===this.tokens[n].id)}probability(t,e,o=this.
token){let n=o*this.sizes.words;return e.map(a=>this.tokenizer.ids.get(a)??-1).reduce((a,i)=>a+(this.run(t).probabilities[n+i]??0),0)}row(t,e=this.headName,o=this.
token){let[n,r]=H(e,this.sizes)??[0,0],a=this.tokens.length;return this.run(t).layers[n].weights[r].subarray(o*a,o*a+o+1)}guesses(t){return ns(this.run(t))}get changedGuesses(){
let[t,e]=[this.guesses("before"),this.guesses("after")];return t.flatMap((o,n)=>o===e[n]?[]:[n])}get round(){let t=this.before.ids;for(let e=2;2*e<t.length;e+=1)
if(t.slice(1+e).every((o,n)=>o===t[1+n]))return 1+e;return 0}copied(t){let{round:e}=this,o=e?this.guesses(t).slice(e,-1):[];return o.length?o.filter((n,r)=>n===
this.before.ids[e+r+1]).length/o.length:NaN}loss(t){return Bt(this.run(t))}get off(){return ds(this.settings)}get changedHeads(){return cs(this.settings)}get cacheBytes(){
return qt(this.settings,this.sizes)}lossGrowth(t=this.settings){let[e,o]=[this.losses.get(""),this.losses.get(F(t))];return e===void 0||o===void 0?null:o/e-1}difference(t,e=this.
token){let o=this.sizes.heads*this.sizes.headDim,[n,r]=[this.before.layers[t].outputs,this.after.layers[t].outputs],[a,i]=[0,0];for(let h=e*o;h<(e+1)*o;h+=1)a+=
(r[h]-n[h])**2,i+=n[h]**2;return Math.sqrt(a/i)}};var Yo=44,Ys={uniform:"all words equally",previous:"previous word",first:"first word"},ue=class{constructor(t,e,o=n=>`Layer ${n}`){this.layers=t,this.title=o,this.
handlers=e,this.cells=t.map((a,i)=>a.map((h,c)=>this.cell(h,i,c))),this.bars=t.map((a,i)=>this.bar(i,a.length)),this.pattern=l("select",{"aria-label":"where the\
 chosen head looks"}),this.pattern.append(l("option",{value:""},"as it was trained"),...St.map(a=>l("option",{value:a},Ys[a]))),this.pattern.addEventListener("c\
hange",()=>{let a=St.find(i=>i===this.pattern.value)??null;e.pattern?.(this.at[0],this.at[1],a)}),this.patternName=l("span",{});let n=l("div",{class:"choice det\
ail"},l("label",{},this.patternName,this.pattern));n.append(S("pattern by hand"));let r=t.map((a,i)=>{let h=l("div",{class:"switchrow"},...this.cells[i].map(({box:c})=>c));
return h.style.setProperty("--heads",String(a.length)),l("div",{class:"switchlayer"},this.bars[i].box,h)});this.box=l("div",{class:"switches"},...r,e.pattern?n:
null),this.kinds=Qo(t.flat()),this.at=[0,0]}cell({name:t,shown:e,kind:o,label:n},r,a){let i=l("span",{class:"dot"});o&&(i.style.backgroundColor=we(o));let h=l("\
canvas",{class:"thumb","aria-hidden":"true",hidden:!0}),c=l("button",{type:"button",class:"headname","data-head":t,onclick:()=>this.handlers.select(r,a)},h,l("b",
{},i,e??t),o?l("small",{},n??o):null),d=l("input",{type:"checkbox","aria-label":`${t} on`,"data-switch":t});d.addEventListener("change",()=>this.handlers.scale(
r,a,d.checked?1:0,!1));let u=l("input",{type:"range",min:0,max:1,step:.05,"aria-label":`strength of ${t}`,"data-scale":t,oninput:()=>{m.textContent=I(Number(u.value)),
this.handlers.scale(r,a,Number(u.value),!0)},onchange:()=>this.handlers.settle?.()}),m=l("span",{class:"strength"});return{box:l("div",{class:"switch"},c,l("div",
{class:"dial"},d,u,m)),thumb:h,choose:c,on:d,slider:u,value:m}}bar(t,e){let o=this.title(t),n=l("input",{type:"checkbox","data-merge":t,"aria-label":`one head i\
n ${o}`});n.addEventListener("change",()=>this.handlers.merge?.(t,n.checked));let r=l("select",{"data-share":t,"aria-label":`keys/values of ${o}`});for(let h of $e(
e))r.append(l("option",{value:h},String(h)));r.addEventListener("change",()=>this.handlers.share?.(t,Number(r.value)));let a=t===0;return{box:l("div",{class:"la\
yerbar"},l("b",{},o),this.handlers.merge?l("span",{class:"toggle"},l("label",{},n,l("span",{},"one head")),a?S("one head"):null):null,this.handlers.share?l("spa\
n",{class:"choice"},l("label",{},l("span",{},"keys/values"),r),a?S("keys/values"):null):null),merge:n,share:r}}update(t,e,o){this.at=[e,o],this.cells.forEach((n,r)=>n.
forEach(({box:a,choose:i,on:h,slider:c,value:d},u)=>{let{scale:m,pattern:f}=t[r].heads[u];h.checked=m>0,c.value=String(m),d.textContent=f?Ys[f]:I(m),a.classList.
toggle("isoff",m===0),a.classList.toggle("changed",m!==1||f!==null),i.setAttribute("aria-pressed",String(r===e&&u===o))})),this.bars.forEach(({merge:n,share:r},a)=>{
n.checked=t[a].merged,r.value=String(t[a].kvHeads)}),this.pattern.value=t[e].heads[o].pattern??"",this.pattern.disabled=t[e].merged,this.patternName.textContent=
`${this.layers[e][o].name} looks`}drawMaps(t){let e=Math.round(Yo*tt());this.cells.forEach((o,n)=>o.forEach(({thumb:r},a)=>{let i=t(n,a);r.hidden=!1,B(r,e,e);let h={
x:0,y:0,w:i.keys,h:i.queries};U(r).putImageData(kt(i,h,r.width,r.height),0,0)}))}};function Qo(s){let t=new Map;for(let n of s)n.kind&&!t.has(n.kind)&&t.set(n.kind,
n);let e=[...t].map(([n,{meaning:r}])=>{let a=l("span",{class:"dot"});return a.style.backgroundColor=we(n),l("span",{class:"kindkey"},a,n," ",S(n,r))}),o=l("spa\
n",{class:"dim"},"Kinds ",S("kind"));return e.length?l("p",{class:"kindkeys"},o,...e):null}function Qs(s,t){let e=jt(s),o=0;return Object.fromEntries(t.map(([n,r])=>[n,e.slice(o,o+=r)]))}var Jo=250,Xo=100,Zo="<now> <town> the keys that the man near the door sees",je=class{constructor(t){this.values=new Map(t.map(([,e])=>[e,l("dd",{"data-fact":e})])),
this.box=l("dl",{class:"facts"});for(let[e,o]of t)this.box.append(l("div",{},l("dt",{},e," ",S(o)),this.values.get(o)))}show(t,e){let o=this.values.get(t);o&&(o.
textContent=e,o.parentElement?.toggleAttribute("hidden",e===null))}};function tn({kinds:s,meanings:t},e){return t[e]??Wt(s[e]).map(o=>$t[o.name]).join(" ")}var We=class{constructor(t){
this.session=t;let e=()=>this.changed(),o=a=>{t.chosen=a,e()};this.lessons=new oe(t,e),this.input=new Xt(t,e),this.predictions=new le(t,o),this.maps=new he(t,o),
this.computation=new Qt(t,a=>{t.layer=a,e()}),this.switches=this.makeSwitches(),this.undo=l("button",{type:"button",id:"undo",onclick:()=>this.act(()=>t.undo())},
"Undo"),this.redo=l("button",{type:"button",id:"redo",onclick:()=>this.act(()=>t.redo())},"Redo");let n=()=>this.act(()=>t.switch(a=>a.splice(0,a.length,...N(t.
sizes))));this.reset=l("button",{type:"button",id:"reset",onclick:n},"Reset"),this.facts=new je([["heads on","head"],[`mean loss over ${t.data.samples.length} s\
ample texts`,"mean loss"],["KV cache","KV cache"],["words copied","words copied"]]);let r=l("section",{class:"heads","aria-label":"heads"},l("div",{class:"input\
top"},l("h2",{},"Heads"),S("head"),this.undo,this.redo,this.reset),l("p",{class:"dim caption"},"Click a head's name to see where it looks. Untick it to switch i\
t off, or scale its output with the slider. ",S("switch")),this.switches.box,this.switches.kinds);this.predictions.list.before(this.facts.box),j("main").replaceChildren(
this.lessons.box,this.lessons.bar,this.input.box,l("div",{class:"two"},r,this.predictions.box),this.maps.box,this.computation.box),this.samples=new ce(t,()=>this.
measured(),()=>this.lessons.removals),this.addressTimer=0,this.measureTimer=0,this.frame=0}makeSwitches(){let{session:t}=this,{layers:e,heads:o}=t.sizes,n=Array.
from({length:e},(a,i)=>Array.from({length:o},(h,c)=>({name:q(i,c),kind:t.card.kinds[q(i,c)],meaning:tn(t.card,q(i,c))}))),r=(a,i="")=>this.act(()=>t.switch(a,i));
return new ue(n,{select:(a,i)=>this.act(()=>{t.layer=a,t.head=i}),scale:(a,i,h,c)=>{let d=c?q(a,i):"";r(u=>{u[a].heads[i].scale=h},d)},settle:()=>{t.gesture=""},
pattern:(a,i,h)=>r(c=>{c[a].heads[i].pattern=h}),merge:(a,i)=>r(h=>{h[a].merged=i}),share:(a,i)=>r(h=>{h[a].kvHeads=i})})}act(t){t(),this.changed()}changed(){delete document.
body.dataset.ready,!this.frame&&(this.frame=requestAnimationFrame(()=>{this.frame=0,this.update()}))}update(){let{session:t}=this;t.compute(),this.input.update(),
this.switches.update(t.settings,t.layer,t.head),this.switches.drawMaps((e,o)=>this.maps.picture(e,o)),this.undo.disabled=!t.past.length,this.redo.disabled=!t.future.
length,this.reset.disabled=!t.changed,this.predictions.update(),this.maps.update(),this.computation.update(),this.lessons.update(),this.drawFacts(),this.saveAddress(),
clearTimeout(this.measureTimer),this.measureTimer=window.setTimeout(()=>this.measure(),Xo),document.body.dataset.took=t.took.toFixed(1),document.body.dataset.ready=
"play"}measure(){this.lessons.measure(),this.samples.measure()}measured(){this.drawFacts(),this.lessons.update(),this.saveAddress()}saveAddress(){clearTimeout(this.
addressTimer),this.addressTimer=window.setTimeout(()=>this.writeAddress(),Jo)}writeAddress(){try{history.replaceState(null,"",this.session.hash)}catch{}}drawFacts(){
let{session:t}=this,e=t.sizes.layers*t.sizes.heads,o=t.copied("after");this.facts.show("head",`${e-t.off.length} of ${e}`),this.facts.show("mean loss",this.lossText()),
this.facts.show("KV cache",`${t.cacheBytes} bytes per word`),this.facts.show("words copied",Number.isNaN(o)?null:xt(o,3))}lossText(){let{session:t}=this,[e,o]=[
t.losses.get(""),t.lossGrowth()];if(e===void 0)return"measuring…";if(o===null)return`${I(e)} → measuring…`;if(!t.changed)return I(e);let n=`${o>=0?"+":"−"}${xt(
Math.abs(o))}`;return`${I(e)} → ${I(e*(1+o))} (${n})`}onKey(t){let e=t.key.toLowerCase();if(!["z","y"].includes(e)||!(t.ctrlKey||t.metaKey)||Q(t,"textarea, in\
put[type=text]"))return;t.preventDefault();let o=e==="y"||t.shiftKey;this.act(()=>o?this.session.redo():this.session.undo())}resize(){this.maps.resize(),this.computation.
draw()}};function en(s){let{layers:t,heads:e,width:o,headDim:n,words:r}=s.sizes,a=[[Ve(s.parameters),"parameters","parameters"],[`${dt(t,"layer")} × ${dt(e,"he\
ad")}`,`d_model ${o}, d_k ${n}`,"head"],[String(r),"words","the language"]];j("card").replaceChildren(...a.map(([i,h,c])=>l("span",{},l("b",{},i)," ",l("span",{
class:"few"},`${h} `,S(c))))),j("foot").replaceChildren(l("p",{},`multihead ${s.version}. The model runs in this page, which sends nothing. The URL saves words \
and switches. Ctrl+Z undoes a switch, Ctrl+Y does it again.`))}function Js(s){document.documentElement.dataset.theme=s,ts()}async function sn(){let s=window.matchMedia(
"(prefers-color-scheme: dark)");if(Js(s.matches?"dark":"light"),typeof DecompressionStream>"u"){j("main").append(l("p",{class:"lead"},"This browser is too old f\
or this page. Use Chrome 111, Safari 16.4, Firefox 113 or a newer one."));return}let t=await Ge();Ke(t.charts),en(t);let e=new de(t,new Ut(t.sizes,Qs(await nt(0),
t.layout)),Rs);e.text=Zo;let o=e.card.agreement.match(/\d+/g)?.map(Number);o&&([e.layer,e.head]=o),location.hash.length>1&&e.restore(location.hash);let n=new We(
e),r=h=>{Js(h),n.update()},a=()=>document.documentElement.dataset.theme==="dark"?"light":"dark";j("tools").append(ws(()=>n.writeAddress())??""),j("tools").append(
l("button",{type:"button",id:"theme",onclick:()=>r(a())},"Light / dark")),s.addEventListener("change",()=>r(s.matches?"dark":"light")),window.addEventListener("\
hashchange",()=>{location.hash!==e.hash&&n.act(()=>e.restore(location.hash))}),window.addEventListener("keydown",h=>n.onKey(h));let i=0;window.addEventListener(
"resize",()=>{clearTimeout(i),i=window.setTimeout(()=>n.resize(),80)}),n.update(),Object.defineProperty(window,"multihead",{value:Object.freeze({session:e,page:n})})}
sn();})();
