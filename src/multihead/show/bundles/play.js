"use strict";(()=>{function O(s){let t=document.getElementById(s);if(!t)throw new Error(`the page has no element #${s}`);return t}function c(s,t={},...e){let o=document.createElement(
s);for(let[n,r]of Object.entries(t))r==null||r===!1||(typeof r=="function"?o.addEventListener(n.slice(2),r):o.setAttribute(n,r===!0?"":String(r)));return Le(o,e),
o}function Le(s,t){for(let e of t)Array.isArray(e)?Le(s,e):e!=null&&s.append(e)}function D(s){O("live").textContent=s}function Ce(s,t){let e=c("a",{href:URL.createObjectURL(s),download:t});e.click(),setTimeout(()=>URL.revokeObjectURL(e.href),1e4)}function Q(s,t){let e=t.getBoundingClientRect();
return[s.clientX-e.left,s.clientY-e.top]}function U(s,t){return s.target instanceof Element?s.target.closest(t):null}var qe=null,Ne=Uint8Array;async function ze(s){let t=Ne.fromBase64?Ne.fromBase64(s):Uint8Array.from(atob(s),o=>o.charCodeAt(0)),e=new Response(t).body;return new Uint8Array(
await new Response(e.pipeThrough(new DecompressionStream("deflate-raw"))).arrayBuffer())}async function Oe(){let s=O("data"),t=JSON.parse(new TextDecoder().decode(
await ze(s.textContent??"")));return s.remove(),t}function J(s){return qe??=(O("lines").textContent??"").split(`
`),ze(qe[s])}var ot=s=>new Float32Array(s.buffer,s.byteOffset,s.byteLength/4),Jt=s=>new Uint32Array(s.buffer,s.byteOffset,s.byteLength/4),Cs=Float64Array.from({
length:32},(s,t)=>2**((t||1)-25));function Tt(s){let t=s.length/2,e=new Float32Array(t);for(let o=0;o<t;o+=1){let n=s[o]<<8|s[t+o],r=n>>10&31,a=((r?1024:0)+(n&1023))*
Cs[r];e[o]=n&32768?-a:a}return e}var j;function _e(s){j=s}var Re=s=>s==null||Number.isNaN(s);function z(s,t=j.format.digits){let{missing:e,plain:o}=j.format;if(Re(s))return e;let n=Math.abs(s);return Number.isInteger(s)&&
n<o[1]?String(s):n>=o[1]||n<o[0]?s.toExponential(1).replace("e+","e").replace(".0e","e"):String(Number(s.toPrecision(t)))}function B(s){let{missing:t,fraction_digits:e}=j.
format;return Re(s)?t:s.toFixed(e)}var X=(s,t=2)=>`${z(100*s,t)} %`;function je(s){let t=Math.max(0,Math.min(3,Math.floor(Math.log10(Math.max(1,s))/3)));return`${Number(
(s/1e3**t).toPrecision(3))}${[""," k"," M"," G"][t]}`}function nt(s,t=24){let e=Array.from(s);return e.length<=t?s:`${e.slice(0,t-1).join("")}…`}var Pe=s=>s?`${s[0].
toUpperCase()}${s.slice(1)}${/[.!?]$/.test(s)?"":"."}`:"",ut=(s,t)=>`${s} ${t}${s===1?"":"s"}`;var Xt={head:"A head looks at every token of a text and mixes some of them into each token. A layer has several heads, each with its own weights. L3H7 is head 7\
 of layer 3; both are counted from 0.",layer:"A step of the model. Its heads work side by side; the next layer reads what they wrote.",token:"A word or a piece \
of a word: the unit that the model reads.",parameters:"The numbers that training has set. M is a million.","kv heads":"Heads that have keys and values of their \
own. Where several heads share them (grouped-query attention), there are fewer kv heads than heads.","attention map":"One square per pair of tokens. Each row is\
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
l."},Ie=s=>Object.assign(Xt,s);var K=c("div",{id:"definition",role:"note",hidden:!0}),G=null;function mt(){G?.setAttribute("aria-expanded","false"),G=null,K.hidden=!0}function qs(s,t,e){mt(),
G=s,s.setAttribute("aria-expanded","true"),K.replaceChildren(c("b",{},t),c("p",{},e)),document.body.append(K),K.hidden=!1;let o=s.getBoundingClientRect(),{width:n,
height:r}=K.getBoundingClientRect(),a=Math.max(8,Math.min(o.left-12,document.documentElement.clientWidth-n-8)),i=o.bottom+6+r<=window.innerHeight||o.top<r+6;K.style.
left=`${a+window.scrollX}px`,K.style.top=`${(i?o.bottom+6:o.top-r-6)+window.scrollY}px`,D(`${t}: ${e}`)}document.addEventListener("pointerdown",s=>{let t=s.target;
G&&!K.contains(t)&&!G.contains(t)&&mt()});window.addEventListener("hashchange",mt);document.addEventListener("keydown",s=>{s.key!=="Escape"||!G||(s.stopPropagation(),
G.focus(),mt())},{capture:!0});function E(s,t=Xt[s]){let e=c("button",{type:"button",class:"help","aria-label":`What is ${s}?`,"aria-expanded":"false",onclick:o=>{
o.preventDefault(),o.stopPropagation(),G===e?mt():qs(e,s,t)}});return e.textContent="?",e}var Ns=s=>s.split(",")[0];function At(s){let t=Ns(s).split(" + ");return j.shares.filter(({name:e})=>t.includes(e))}var Z=256;function te(s){let{kinds:t,no_value:e}=j;return Object.hasOwn(t,s)?t[s]:At(s)[0]?.colour??e}var zs=s=>[1,3,5].map(t=>parseInt(s.slice(t,t+2),16));function Os(s){let t=s.map(zs),e=new Uint8Array(3*Z);for(let o=0;o<Z;o+=1){let n=o/(Z-1)*(t.length-1),r=Math.
min(t.length-2,Math.floor(n));for(let a=0;a<3;a+=1)e[3*o+a]=Math.round(t[r][a]+(n-r)*(t[r+1][a]-t[r][a]))}return e}var We=new Map;function He(s){let t=We.get(s);
return t||(t=Os(j.ramps[s]),We.set(s,t)),t}var ee=()=>document.documentElement.dataset.theme==="dark"?"weight-dark":"weight",Fe=()=>document.documentElement.dataset.
theme==="dark"?"signed-dark":"signed";function se(s,t){let e=He(s),o=3*Math.max(0,Math.min(Z-1,Math.round(t*(Z-1))));return`rgb(${e[o]} ${e[o+1]} ${e[o+2]})`}var Zt=new Map,
Et=null;function H(s){let t=Zt.get(s);return t===void 0&&(t=getComputedStyle(document.documentElement).getPropertyValue(s).trim(),Zt.set(s,t)),t}function De(){if(!Et){
let s=He(ee()),t=new Uint8Array(4*Z).fill(255);for(let e=0;e<Z;e+=1)t.set(s.subarray(3*e,3*e+3),4*e);Et=new Uint32Array(t.buffer)}return Et}function Ue(){Et=null,
Zt.clear()}function rt(s,t,e,o){let[n,r]=[s.length/o,t.length/o],a=new Float32Array(n*r);for(let i=0,h=0;i<n;i+=1){let l=i*o,u=0;for(;u+3<r;u+=4,h+=4){let d=0,f=0,m=0,w=0;
for(let p=0,y=u*o;p<o;p+=1,y+=1){let g=s[l+p];d+=g*t[y],f+=g*t[y+o],m+=g*t[y+2*o],w+=g*t[y+3*o]}a[h]=d,a[h+1]=f,a[h+2]=m,a[h+3]=w}for(;u<r;u+=1,h+=1){let d=0;for(let f=0,
m=u*o;f<o;f+=1,m+=1)d+=s[l+f]*t[m];a[h]=d}if(e)for(let d=0;d<r;d+=1)a[i*r+d]+=e[d]}return a}function ft(s,t,e){let[o,n]=[0,0];for(let r=t;r<t+e;r+=1)o+=s[r]/e;for(let r=t;r<
t+e;r+=1)n+=(s[r]-o)**2/e;return{mean:o,scale:1/Math.sqrt(n+1e-5)}}function St(s,t,e){let o=t.length,n=new Float32Array(s.length);for(let r=0;r<s.length;r+=o){let{
mean:a,scale:i}=ft(s,r,o);for(let h=0;h<o;h+=1)n[r+h]=(s[r+h]-a)*i*t[h]+e[h]}return n}function _s(s){if(Math.abs(s)>5.9)return Math.sign(s);let[e,o]=[s,s];for(let n=1;Math.
abs(e)>1e-17*Math.abs(o);n+=1)e*=2*s*s/(2*n+1),o+=e;return 2/Math.sqrt(Math.PI)*Math.exp(-s*s)*o}var Be=s=>.5*(1+_s(s/Math.SQRT2)),Ke=s=>s*Be(s),Ge=s=>Be(s)+s*Math.
exp(-.5*s*s)/Math.sqrt(2*Math.PI),oe=(s,t)=>s.map((e,o)=>e+t[o]);function ne(s,t,e){let[o,n]=[-1/0,0];for(let r=t;r<t+e;r+=1)s[r]>o&&(o=s[r]);for(let r=t;r<t+e;r+=
1)n+=s[r]=Math.exp(s[r]-o);for(let r=t;r<t+e;r+=1)s[r]/=n}function at(s,{heads:t,headDim:e,rotaryDim:o,rotaryBase:n},r=1){let a=s.slice(),[i,h]=[t*e,o/2];for(let l=0,
u=0;l<s.length;l+=i,u+=1)for(let d=0;d<h;d+=1){let f=r*u*n**(-d/h),[m,w]=[Math.cos(f),Math.sin(f)];for(let p=l+d,y=l+i;p<y;p+=e)a[p]=s[p]*m-s[p+h]*w,a[p+h]=s[p+
h]*m+s[p]*w}return a}var re=3,x=s=>z(s).replace(/^-/,"−");function pt(s,t){let e=s.filter(([n,r])=>n*r!==0).sort((n,r)=>Math.abs(r[0]*r[1])-Math.abs(n[0]*n[1])),o=e.slice(0,re).map(
([n,r])=>`${x(n)} · ${x(r)}`);return e.length>re&&o.push(`… (${e.length-re} smaller terms)`),t!==void 0&&o.push(x(t)),o.join(" + ")||"0"}var Lt=(s,t,e,o,n=0)=>Array.
from({length:o},(r,a)=>[s[t*o+a],e[n+a]]);var wt=["uniform","previous","first"],_=({layers:s,heads:t})=>Array.from({length:s},()=>({heads:Array.from({length:t},()=>({scale:1,pattern:null})),merged:!1,kvHeads:t}));
function gt({heads:s,merged:t}){let e=s.map((o,n)=>n);return t?[e]:e.map(o=>[o])}var Rs=(s,t)=>s==="uniform"?null:s==="first"?0:Math.max(0,t-1),Ct=class{constructor(t,e){
this.sizes=t,this.weights=e}of(t,e){return this.weights[`layers.${t}.${e}`]}run(t,e=_(this.sizes)){let{width:o,words:n,layers:r}=this.sizes,a=this.weights["word\
s.weight"],i=new Float32Array(t.length*o);t.forEach((f,m)=>i.set(a.subarray(f*o,(f+1)*o),m*o));let h=[];for(let f=0;f<r;f+=1){let m=f?h[f-1].output:i;h.push(this.
runLayer(f,m,e[f]))}let l=St(h[r-1].output,this.weights["norm.weight"],this.weights["norm.bias"]),u=rt(l,a,null,o),d=u.slice();for(let f=0;f<t.length;f+=1)ne(d,
f*n,n);return{ids:t,embedding:i,layers:h,normed:l,logits:u,probabilities:d}}runLayer(t,e,o){let{width:n,hidden:r,heads:a,headDim:i}=this.sizes,h=$=>this.of(t,$),
l=St(e,h("attention_norm.weight"),h("attention_norm.bias")),u=$=>rt(l,h(`attention.${$}_proj.weight`),h(`attention.${$}_proj.bias`),n),d=at(u("q"),this.sizes),f=this.
shared(at(u("k"),this.sizes),o.kvHeads),m=this.shared(u("v"),o.kvHeads),{scores:w,weights:p}=this.attend(d,f,o),y=this.mix(p,m),g=y.map(($,L)=>$*o.heads[Math.floor(
L%(a*i)/i)].scale),k=rt(g,h("attention.o_proj.weight"),h("attention.o_proj.bias"),a*i),M=oe(e,k),S=St(M,h("hidden_norm.weight"),h("hidden_norm.bias")),A=rt(S,h(
"up.weight"),h("up.bias"),n),C=A.map(Ke),v=rt(C,h("down.weight"),h("down.bias"),r),b=oe(M,v);return{input:e,normed:l,q:d,k:f,v:m,scores:w,weights:p,outputs:y,concatenated:g,
attention:k,middle:M,middleNormed:S,up:A,active:C,down:v,output:b}}shared(t,e){let{heads:o,headDim:n}=this.sizes,r=o/e;if(r===1)return t;let a=new Float32Array(
t.length);for(let i=0;i<t.length;i+=r*n)for(let h=0;h<n;h+=1){let l=0;for(let u=i+h;u<i+r*n;u+=n)l+=t[u];for(let u=i+h;u<i+r*n;u+=n)a[u]=l/r}return a}attend(t,e,o){
let{heads:n,headDim:r}=this.sizes,a=n*r,i=t.length/a,h=[],l=[];for(let u of gt(o)){let d=1/Math.sqrt(u.length*r),[f,m]=[u[0]*r,u.length*r],w=new Float32Array(i*
i);for(let g=0;g<i;g+=1)for(let k=0;k<=g;k+=1){let M=0,S=g*a+f;for(let A=S,C=k*a+f;A<S+m;A+=1,C+=1)M+=t[A]*e[C];w[g*i+k]=M*d}let p=o.merged?null:o.heads[u[0]].pattern,
y=p?js(p,i):w.slice();if(!p)for(let g=0;g<i;g+=1)ne(y,g*i,g+1);for(let g of u)h[g]=w,l[g]=y}return{scores:h,weights:l}}mix(t,e){let{heads:o,headDim:n}=this.sizes,
r=o*n,a=e.length/r,i=new Float32Array(e.length),h=new Float64Array(n);for(let l=0;l<o;l+=1)for(let u=0;u<a;u+=1){h.fill(0);for(let d=0;d<=u;d+=1){let f=t[l][u*a+
d];if(f!==0)for(let m=0,w=d*r+l*n;m<n;m+=1,w+=1)h[m]+=f*e[w]}i.set(h,u*r+l*n)}return i}};function js(s,t){let e=new Float32Array(t*t);for(let o=0;o<t;o+=1){let n=Rs(
s,o);n===null?e.fill(1/(o+1),o*t,o*t+o+1):e[o*t+n]=1}return e}function qt({ids:s,probabilities:t}){let e=t.length/s.length,o=0;for(let n=0;n+1<s.length;n+=1)o-=
Math.log(t[n*e+s[n+1]]);return s.length>1?o/(s.length-1):0}function Ve({ids:s,probabilities:t}){let e=t.length/s.length;return s.map((o,n)=>{let r=0;for(let a=1;a<
e;a+=1)t[n*e+a]>t[n*e+r]&&(r=a);return r})}var yt=(s,t,e)=>s.subarray(t*e,(t+1)*e);function Ye(s,t,e){let{mean:o,scale:n}=ft(s,0,s.length);return r=>`(x − mean) / deviation · weight + bias = (${x(s[r])}\
 − ${x(o)}) / ${x(1/n)} · ${x(t[r])} + ${x(e[r])}`}function Qe(s){let{model:t,layer:e,token:o,settings:n}=s,{width:r,heads:a,headDim:i,hidden:h}=s.sizes,l=s.
after.layers[e],u=b=>t.of(e,b),d=(b,$=r)=>yt(b,o,$),[f,m,w]=[d(l.input),d(l.middle),d(l.active,h)],[p,y]=[d(l.attention),d(l.concatenated,a*i)],g=`${r} = d_mode\
l`,k=d(s.after.embedding),M=e?"embedding + what earlier layers added = ":"",A=[{name:e?`vector that enters layer ${e}`:`embedding of “${s.word(o)}”`,symbol:"\
x",shape:g,values:f,formula:b=>e?`${M}${x(k[b])} + ${x(f[b]-k[b])}`:`row ${s.before.ids[o]} of the embedding table, column ${b}`},{name:"the same, normalized",symbol:"\
x̂",shape:g,values:d(l.normed),formula:Ye(f,u("attention_norm.weight"),u("attention_norm.bias"))}],C=b=>Array.from({length:a},($,L)=>{let W=0;for(let Y=L*i;Y<(L+
1)*i;Y+=1)W+=u("attention.o_proj.weight")[b*a*i+Y]*y[Y];return`${x(W)} from L${e}H${L}`}).join(" + "),v=[{name:"outputs of all heads, side by side",symbol:"conc\
atenation",shape:`${a*i} = ${a} heads × d_k`,values:y,breaks:Array.from({length:a-1},(b,$)=>($+1)*i),formula:b=>{let $=Math.floor(b/i),L=d(l.outputs,a*i)[b];return`\
number ${b%i} of L${e}H${$}'s output, times its strength: ${x(L)} · ${x(n[e].heads[$].scale)}`}},{name:"mixed by W_O",symbol:"attention",shape:g,values:p,formula:b=>`\
row ${b} of W_O times the concatenation + bias = ${C(b)} + ${x(u("attention.o_proj.bias")[b])}`},{name:"added to the vector that entered",symbol:"residual",shape:g,
values:m,formula:b=>`x + attention = ${x(f[b])} + ${x(p[b])}`},{name:"hidden layer",symbol:"hidden",shape:String(h),values:w,formula:b=>`GELU(row ${b} of W_up t\
imes the normalized residual + bias) = GELU(${x(d(l.up,h)[b])})`},{name:`vector that leaves layer ${e}`,symbol:"out",shape:g,values:d(l.output),formula:b=>`resi\
dual + W_down · hidden + bias = ${x(m[b])} + ${x(d(l.down)[b])}`}];return{before:A,after:v}}function Je(s,t){let{model:e,layer:o,token:n,sizes:r}=s,{width:a,heads:i,
headDim:h,rotaryDim:l}=r,u=s.settings[o],d=s.after.layers[o],f=s.tokens.length,m=T=>e.of(o,`attention.${T}`),w=(T,P=n)=>{let R=P*i*h+t*h;return T.subarray(R,R+h)},
p=yt(d.normed,n,a),y=`${h} = d_k`,g=i/u.kvHeads>1?`, the mean of ${i/u.kvHeads} heads`:"",k=(T,P)=>R=>{let Mt=t*h+R,Es=m(`${T}_proj.bias`)[Mt],Ss=pt(Lt(m(`${T}_\
proj.weight`),Mt,p,a),Es),Ls=P&&R<l?`, then rotated by the position ${n} together with number ${(R+l/2)%l}`:"";return`W_${T.toUpperCase()}[${R}] · x̂ + bias = ${Ss}${Ls}${T===
"q"?"":g}`},M=T=>T.subarray(n*f,n*f+n+1),[S,A]=[M(d.scores[t]),M(d.weights[t])],C=gt(u).find(T=>T.includes(t))??[t],v=C.length*h,b=(T,P)=>{let R=P*i*h+C[0]*h;return T.
subarray(R,R+v)},$=T=>`“${s.word(T)}”`,L=S.reduce((T,P)=>Math.max(T,P),-1/0),W=S.reduce((T,P)=>T+Math.exp(P-L),0),Y=u.merged?null:u.heads[t].pattern,{scale:Se}=u.
heads[t],As=Se===1?"":`; times its strength ${x(Se)} in the concatenation`;return[{name:"query q",symbol:"q",shape:y,values:w(d.q),formula:k("q",!0)},{name:"key\
 k",symbol:"k",shape:y,values:w(d.k),formula:k("k",!0)},{name:"value v",symbol:"v",shape:y,values:w(d.v),formula:k("v",!1)},{name:"scores q · k / √d",symbol:"\
score",shape:`${n+1} words so far`,values:S,label:$,formula:T=>`q · k / √${v} = (${pt(Lt(b(d.k,T),0,b(d.q,n),v))}) / ${x(Math.sqrt(v))}`},{name:"weights: sof\
tmax of the scores",symbol:"weight",shape:`${n+1}, sum 1`,values:A,label:$,positive:!0,formula:T=>Y?`set by hand: ${Y}`:`e^(score − largest) / sum = e^(${x(S[T])}\
 − ${x(L)}) / ${x(W)} = ${x(Math.exp(S[T]-L))} / ${x(W)}`},{name:"output: weighted sum of the values",symbol:"output",shape:y,values:w(d.outputs),formula:T=>{
let P=Array.from(A,(R,Mt)=>[R,w(d.v,Mt)[T]]);return`Σ weight · v[${T}] = ${pt(P)}${As}`}}]}function Xe(s){let{model:t,token:e,after:o}=s,{width:n,words:r,layers:a}=s.
sizes,i=yt(o.layers[a-1].output,e,n),h=yt(o.normed,e,n),[l,u]=[o.logits,o.probabilities].map(p=>yt(p,e,r)),d=l.reduce((p,y)=>Math.max(p,y),-1/0),f=l.reduce((p,y)=>p+
Math.exp(y-d),0),m=p=>`“${s.data.words[p]}”`,w=t.weights["words.weight"];return[{name:"last vector, normalized",symbol:"y",shape:`${n} = d_model`,values:h,formula:Ye(
i,t.weights["norm.weight"],t.weights["norm.bias"])},{name:"score of every word (its logit)",symbol:"score",shape:`${r} words`,values:l,label:m,formula:p=>`embed\
ding of ${m(p)} · y = ${pt(Lt(w,p,h,n))}`},{name:"probability that the word comes next",symbol:"probability",shape:`${r}, sum 1`,values:u,label:m,positive:!0,formula:p=>`\
e^(score − largest) / sum = ${x(Math.exp(l[p]-d))} / ${x(f)}`}]}var Ps=16,Nt="system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif",bt=()=>window.devicePixelRatio||1;function it(s){let t=s.getContext("2d");if(!t)throw new Error(
"this browser draws no canvas");return t}function ht(s,t,e){let o=bt(),[n,r]=[Math.max(1,Math.round(t*o)),Math.max(1,Math.round(e*o))],a=it(s);return s.width===
n&&s.height===r&&s.style.width&&"reset"in a?a.reset():(s.width=n,s.height=r,s.style.width=`${t}px`,s.style.height=`${e}px`),a.setTransform(o,0,0,o,0,0),a}function ae(s,t,e,o){s.save(),s.translate(e,o),s.rotate(-Math.PI/2),s.fillText(t,0,0),s.restore()}var Ze=()=>parseFloat(getComputedStyle(document.documentElement).
fontSize)/Ps;var zt=20,Is=26,Ot=class{constructor(t){this.inspect=t,this.vector=null,this.cursor=0,this.width=0,this.caption=c("span",{}),this.shape=c("small",{class:"shape"}),
this.canvas=c("canvas",{class:"cells",tabindex:"0",role:"slider","aria-valuemin":0}),this.room=c("div",{class:"striproom"},this.canvas),this.box=c("div",{class:"\
vector"},c("div",{class:"vectortop"},this.caption,this.shape),this.room),this.canvas.addEventListener("pointermove",e=>this.point(e)),this.canvas.addEventListener(
"pointerdown",e=>this.point(e)),this.canvas.addEventListener("focus",()=>this.move(this.cursor)),this.canvas.addEventListener("keydown",e=>this.onKey(e))}show(t){
this.vector=t,this.cursor=Math.min(this.cursor,t.values.length-1),this.caption.textContent=t.name,this.shape.textContent=t.shape,this.canvas.setAttribute("aria-\
label",`${t.name}, ${t.shape}`),this.canvas.setAttribute("aria-valuemax",String(t.values.length-1)),this.announce()}announce(){let{vector:t,cursor:e}=this;t&&(this.
canvas.setAttribute("aria-valuenow",String(e)),this.canvas.setAttribute("aria-valuetext",`${ie(t,e)}: ${z(t.values[e])}`))}draw(t){let{vector:e}=this;if(!e||t<1)
return;let o=e.values.length;this.width=Math.min(t,Is*o);let n=ht(this.canvas,this.width,zt),r=this.width/o,a=Math.max(1e-9,...Array.from(e.values,Math.abs));for(let i=0;i<
o;i+=1){let h=e.values[i];n.fillStyle=e.positive?se(ee(),Math.sqrt(Math.max(0,h))):se(Fe(),.5+h/a/2),n.fillRect(i*r,0,r-(r>5?1:0),zt)}n.fillStyle=H("--ink");for(let i of e.
breaks??[])n.fillRect(i*r-1,0,1.5,zt);(document.activeElement===this.canvas||this.marked)&&this.outline()}marked=!1;outline(){let t=it(this.canvas),e=this.width/
(this.vector?.values.length??1);t.strokeStyle=H("--mark"),t.lineWidth=2,t.strokeRect(this.cursor*e+1,1,Math.max(2,e-2),zt-2)}point(t){if(!this.vector)return;let[
e]=Q(t,this.canvas);this.move(Math.floor(e/this.width*this.vector.values.length))}onKey(t){let e=this.vector?.values.length??1,o={ArrowLeft:this.cursor-1,ArrowRight:this.
cursor+1,Home:0,End:e-1}[t.key];o!==void 0&&(t.preventDefault(),this.move(o))}move(t){let{vector:e}=this;e&&(this.cursor=Math.max(0,Math.min(e.values.length-1,t)),
this.announce(),this.inspect(e,this.cursor,this))}},ie=({symbol:s,label:t},e)=>t?`${s} of ${t(e)}`:`${s}[${e}]`;var _t=class{constructor(t,e){this.session=t,this.title=c("h2",{}),this.layers=c("div",{class:"layertabs",role:"group","aria-label":"layer"});for(let o=0;o<t.sizes.
layers;o+=1)this.layers.append(c("button",{type:"button",onclick:()=>e(o)},`Layer ${o}`));this.body=c("div",{class:"steps-of"}),this.value=c("b",{}),this.formula=
c("span",{}),this.readout=c("div",{class:"readout",id:"readout","aria-live":"polite"},this.value,this.formula),this.box=c("section",{class:"computation"},c("div",
{class:"inputtop"},this.title,E("the computation"),this.layers),this.body,this.readout),this.strips=[],this.built="",this.marked=null,this.clearReadout()}clearReadout(){
this.readout.classList.remove("on"),this.value.textContent="",this.formula.textContent="Point at any cell, tap it, or reach it with Tab and the arrow keys: its \
value and its formula are shown here."}inspect(t,e,o){this.readout.classList.add("on"),this.value.textContent=`${ie(t,e)} = ${x(t.values[e])}`,this.formula.textContent=
`= ${t.formula(e)}`;let n=this.marked;this.marked=o,n&&n!==o&&(n.marked=!1,n.draw(n.width)),o.marked=!0,o.draw(o.width)}update(){let{session:t}=this,{layer:e,token:o,
sizes:n}=t,r=t.tokens.length;this.title.textContent=`The computation for “${t.word(o)}”`,[...this.layers.children].forEach((p,y)=>p.setAttribute("aria-press\
ed",String(y===e)));let{width:a,heads:i,headDim:h}=n,l=Qe(t),u=Array.from({length:i},(p,y)=>Je(t,y)),d=Xe(t),f=[...l.before,...u.flat(),...l.after,...d],m=t.settings[e].
merged,w=`${e} ${m} ${f.length}`;this.built!==w&&(this.build(l.before.length,u.map(p=>p.length),l.after.length,d.length,m),this.built=w),f.forEach((p,y)=>this.strips[y].
show(p)),this.sizesNote.textContent=`${r} words × d_model ${a} → ${i} heads × d_k ${h} → concatenation ${r} × ${i*h} → W_O (${i*h} × ${a}) → ${r} × ${a}`,
this.marked?.vector&&this.marked.move(this.marked.cursor),this.draw()}sizesNote=c("p",{class:"dim"});build(t,e,o,n,r){let{layer:a,sizes:i}=this.session;this.strips=
[],this.marked=null,this.clearReadout();let h=g=>Array.from({length:g},()=>{let k=new Ot((...M)=>this.inspect(...M));return this.strips.push(k),k.box}),l=c("li",
{},c("h3",{},"The vector of the word ",E("embedding")),...h(t)),u=e.map((g,k)=>c("div",{class:"headcard"},c("h4",{},`L${a}H${k}`),...h(g))),f=c("li",{},c("h3",{},
r?"One head: the same scores for all four parts ":"Each head compares, weighs and mixes ",E("query, key, value")),c("div",{class:"headcards"},...u)),m=c("li",{},
c("h3",{},"All heads together ",E("W_O")),...h(o)),w=i.layers-1-a,p=w?`${w} more layer${w>1?"s do":" does"} the same with this vector. Then: the next word `:"Th\
e next word ",y=c("li",{},c("h3",{},p,E("next word")),...h(n));this.body.replaceChildren(this.sizesNote,c("ol",{class:"computing"},l,f,m,y))}draw(){let t=this.strips.
map(({room:e})=>e.clientWidth);this.strips.forEach((e,o)=>e.draw(t[o]))}get inspected(){let t=this.marked;return t?.vector?z(t.vector.values[t.cursor]):""}};var Ws=2e3;function ts(s){if(location.protocol==="about:")return null;let t=c("button",{type:"button",id:"copylink"},"Copy link"),e=c("input",{type:"text",readonly:!0,
hidden:!0,"aria-label":"link to this state"});e.addEventListener("focus",()=>e.select()),e.addEventListener("blur",()=>e.hidden=!0);let o=0;return t.addEventListener(
"click",async()=>{if(s(),!await Hs(location.href)){e.value=location.href,e.hidden=!1,e.focus(),D("Copy the link from the field.");return}t.textContent="Copied",
D("Link copied."),clearTimeout(o),o=window.setTimeout(()=>t.textContent="Copy link",Ws)}),c("span",{class:"copylink"},e,t)}async function Hs(s){try{return await navigator.
clipboard.writeText(s),!0}catch{return!1}}Ie({"the language":"The model reads a small invented language of 214 words. “<now> <town> the keys that the man sees are new .” is a sentence of it; <now> or <p\
ast> says the tense, <sea>, <farm> or <town> the place. Any word list repeated is text, too.","next word":"The model gives every word of its vocabulary a probab\
ility to come next; together they are 1. The bars show the largest. Probabilities come from scores, also called logits, which softmax turns into shares of 1.","\
pattern by hand":"Replaces the weights of the head by fixed ones: every word looks at all words so far equally, at the word before it, or at the first word. Wha\
t the head does with the words that it sees stays as trained.","one head":"Merges the heads of the layer into one with the same matrices W_Q, W_K, W_V and W_O. \
Its query and key are those of all heads side by side, so its score is the sum of their products, divided by the root of the longer length; all parts of the vec\
tor then get the same weights. Patterns set by hand do not apply.","keys/values":"How many sets of keys and values the heads of this layer have. With fewer sets\
 than heads, neighbouring heads share the mean of theirs: grouped-query attention. With one set: multi-query attention.","mean loss":"How surprised the model is\
 by the words of the sample texts: the mean of −log(probability of the word that really came next), in nats. 0 is certainty; guessing among 214 words at random \
is 5.4. Lower is better.","KV cache":"Memory for one word while a text is generated: its key and value in every set of every layer, two bytes per number. Sharin\
g keys and values among heads makes it smaller.","words copied":"In a text that repeats itself: the share of words after the first round that are the likeliest \
next word. The first word of the second round is not counted.",gradient:"The direction in which training on this text would change W_Q, and how strongly: the le\
ngth of the vector of all slopes of the loss, computed exactly by the chain rule.","the computation":"All numbers that lead from the chosen word to the word aft\
er it, in one layer. d_model is the length of a word's vector, d_k the length of the query, key and value of a head. Colours: blue below zero, orange above; wei\
ghts and probabilities from 0 to 1 by their square root.",embedding:"The vector that stands for a word: a row of a table that training has set. The layers add t\
o it step by step.","query, key, value":"Three vectors that each head makes of every word. The query of the chosen word is compared with the keys of the words s\
o far: their product is the score. Softmax turns scores into weights that sum to 1. The output is the sum of the values, each times its weight.",W_O:"The matrix\
 that mixes the outputs of all heads. Each number of the result takes a share of every number of every head."});function lt(s,...t){let e=[...s.querySelectorAll("button")].findIndex(o=>o===document.activeElement);s.replaceChildren(...t),e>=0&&s.querySelectorAll("button")[e]?.
focus()}var Fs=/<[\p{L}\p{N}_]+>|[\p{L}\p{N}_]+|[^\p{L}\p{N}_\s]/gu,[Ds,es,ss]=["<pad>","<s>","<unk>"],he=s=>s!==Ds&&s!==es&&s!==ss,Us=s=>s.slice(0,1).toUpperCase()+s.slice(
1).toLowerCase(),Rt=class{constructor(t){this.words=t,this.ids=new Map(t.map((e,o)=>[e,o])),this.begin=this.ids.get(es)??0,this.unknown=this.ids.get(ss)??0}idOf(t){
return this.ids.get(t)??this.ids.get(t.toLowerCase())??this.ids.get(Us(t))}read(t){let o=(t.match(Fs)??[]).map(n=>{let r=this.idOf(n);return{id:r??this.unknown,
typed:n,known:r!==void 0}});return[{id:this.begin,typed:"",known:!0},...o]}completions(t,e){let o=t.toLowerCase(),n=this.words.filter(i=>i.toLowerCase().startsWith(
o)&&i.toLowerCase()!==o),[r,a]=[!0,!1].map(i=>n.filter(h=>h.startsWith(t)===i));return[...r,...a].filter(he).slice(0,e)}similar(t,e){let o=i=>{let h=`^${i.toLowerCase()}\
$`;return new Set(Array.from({length:h.length-1},(l,u)=>h.slice(u,u+2)))},n=o(t.slice(0,40));return this.words.map(i=>{let h=o(i);return{other:i,score:2*[...h].
filter(l=>n.has(l)).length/(h.size+n.size)}}).filter(({score:i})=>i>.3).sort((i,h)=>h.score-i.score).slice(0,e).map(({other:i})=>i)}};var os=8,jt=class{constructor(t,e){this.session=t,this.changed=e,this.field=c("textarea",{id:"text",rows:2,spellcheck:"false",autocapitalize:"off",autocomplete:"\
off","aria-label":"text that the model reads",oninput:()=>this.typed()}),this.suggestions=c("div",{class:"suggestions",role:"group","aria-label":"words to go on\
 with"}),this.chips=c("div",{class:"chips",role:"group","aria-label":"words; choose the one to look at"}),this.notes=c("div",{class:"notes",role:"status"}),this.
chips.addEventListener("click",r=>{let a=U(r,".wordchip");a&&this.choose(Number(a.dataset.i))}),this.chips.addEventListener("keydown",r=>this.onKey(r)),this.suggestions.
addEventListener("click",r=>{let a=U(r,"button[data-word]");a&&this.complete(a.dataset.word??"")});let o=c("select",{id:"samples","aria-label":"sample texts"},c(
"option",{value:""},"samples…"));t.data.samples.forEach((r,a)=>o.append(c("option",{value:a},nt(r,60)))),o.addEventListener("change",()=>{o.value&&this.setText(
t.data.samples[Number(o.value)]),o.value=""});let n=c("button",{type:"button",onclick:()=>this.setText("")},"Clear");this.box=c("section",{class:"input"},c("div",
{class:"inputtop"},c("h2",{},"Words"),E("the language"),o,n),this.field,this.suggestions,this.notes,this.chips,c("p",{class:"dim caption"},"Under each word: the\
 likeliest next word. ",E("next word"))),this.shown=[]}typed(){this.session.text=this.field.value,this.session.chosen=null,this.changed()}setText(t){this.field.
value=t,this.typed(),this.field.focus()}choose(t){this.session.chosen=t,this.changed()}onKey(t){let e={ArrowLeft:-1,ArrowRight:1}[t.key],o=U(t,".wordchip");if(!e||
!o)return;t.preventDefault();let n=Number(o.dataset.i)+e;n<0||n>=this.session.tokens.length||(this.choose(n),this.shown[n]?.focus())}complete(t){let e=this.partial(),
o=this.field.value,n=e?o.slice(0,o.length-e.length):o&&!/\s$/.test(o)?`${o} `:o;this.setText(`${n}${t} `)}partial(){return/[^\s]+$/.exec(this.field.value)?.[0]??
""}update(){let{session:t}=this;this.field.value!==t.text&&(this.field.value=t.text),this.drawSuggestions(),this.drawNotes(),this.drawChips()}drawSuggestions(){
let{session:t}=this,e=this.partial(),o=e?t.tokenizer.completions(e,os):[],n=o.length?o:this.likely(),r=o.length?"complete: ":"next: ",a=n.map(i=>c("button",{type:"\
button",class:"suggestion","data-word":i},i));lt(this.suggestions,c("span",{class:"dim"},r),...a)}likely(){let{words:t}=this.session.data,e=(this.session.tokens.
length-1)*t.length,o=this.session.after.probabilities.subarray(e,e+t.length);return t.map((r,a)=>a).sort((r,a)=>o[a]-o[r]).map(r=>t[r]).filter(he).slice(0,os)}drawNotes(){
let{session:t}=this,e=[...new Set(t.tokens.filter(({known:n})=>!n).map(({typed:n})=>n))],o=e.slice(0,4).map(n=>{let r=t.tokenizer.similar(n,3),a=r.length?` Simi\
lar: ${r.join(", ")}.`:"",i=t.data.words.length;return c("p",{class:"note"},`“${nt(n,30)}” is not one of the ${i} words of this model, which reads it as <un\
k>.${a}`)});if(e.length>4&&o.push(c("p",{class:"note"},`${e.length-4} more words are unknown.`)),t.dropped){let n=`The model was trained on ${t.data.context} wo\
rds at a time. The last ${ut(t.dropped,"word")} are not read.`;o.push(c("p",{class:"note"},n))}this.notes.replaceChildren(...o)}drawChips(){let{session:t}=this,
{words:e}=t.data,[o,n]=[t.guesses("before"),t.guesses("after")],r=t.row("after");for(;this.shown.length>t.tokens.length;)this.shown.pop()?.remove();t.tokens.forEach(
({typed:a,known:i,id:h},l)=>{let u=this.shown[l];u||(u=c("button",{type:"button",class:"wordchip","data-i":l},c("span",{}),c("small",{})),this.shown.push(u),this.
chips.append(u));let d=o[l]!==n[l],[f,m]=[...u.children];f.textContent=i?e[h]:nt(a,24),m.textContent=e[n[l]],m.classList.toggle("switched",d),u.classList.toggle(
"unknown",!i),u.classList.toggle("from",l===t.token),u.tabIndex=l===t.token?0:-1,u.setAttribute("aria-pressed",String(l===t.token));let w=l<r.length?Math.round(
72*r[l]**j.weight_exponent):0;u.style.backgroundColor=w>2?`color-mix(in srgb, var(--shade) ${w}%, var(--soft))`:"",u.title=d?`next word before: ${e[o[l]]}, now:\
 ${e[n[l]]}`:""})}};function ns(s,t,e){let{words:o,width:n,layers:r}=s.sizes,a=t.ids.length,i=t.probabilities.slice();for(let d=0;d+1<a;d+=1)i[d*o+t.ids[d+1]]-=1;i.fill(0,(a-1)*o);
for(let d=0;d<i.length;d+=1)i[d]/=Math.max(1,a-1);let h=t.layers[r-1].output,l=le(h,s.weights["norm.weight"],tt(i,s.weights["words.weight"],n)),u=[];for(let d=r-
1;d>=0;d-=1){let{gradient:f,dInput:m}=Bs(s,d,t.layers[d],e[d],l);u.unshift(f),l=m}return u}function tt(s,t,e){let o=t.length/e,n=new Float32Array(s.length/o*e);
for(let r=0,a=0;a<s.length;r+=1)for(let i=0;i<o;i+=1,a+=1){let h=s[a];if(h!==0)for(let l=0;l<e;l+=1)n[r*e+l]+=h*t[i*e+l]}return n}function Pt(s,t,e){let o=t.length/
e,n=s.length/o,r=new Float32Array(n*e);for(let a=0;a<o;a+=1)for(let i=0;i<n;i+=1){let h=s[a*n+i];if(h!==0)for(let l=0;l<e;l+=1)r[i*e+l]+=h*t[a*e+l]}return r}function le(s,t,e){
let o=t.length,n=new Float32Array(s.length);for(let r=0;r<s.length;r+=o){let{mean:a,scale:i}=ft(s,r,o),[h,l]=[0,0];for(let u=0;u<o;u+=1){let d=e[r+u]*t[u];h+=d/
o,l+=d*(s[r+u]-a)*i/o}for(let u=0;u<o;u+=1){let d=(s[r+u]-a)*i;n[r+u]=i*(e[r+u]*t[u]-h-d*l)}}return n}function Bs(s,t,e,o,n){let{width:r,hidden:a,heads:i,headDim:h}=s.
sizes,l=v=>s.of(t,v),u=(...v)=>v[0].map((b,$)=>v.reduce((L,W)=>L+W[$],0)),f=tt(n,l("down.weight"),a).map((v,b)=>v*Ge(e.up[b])),m=tt(f,l("up.weight"),r),w=u(n,le(
e.middle,l("hidden_norm.weight"),m)),p=Pt(w,e.concatenated,i*h),y=tt(w,l("attention.o_proj.weight"),i*h),{dq:g,dk:k,dv:M}=Ks(s,e,o,y),S={q:at(g,s.sizes,-1),k:at(
k,s.sizes,-1),v:M},A={q:Pt(S.q,e.normed,r),k:Pt(S.k,e.normed,r),v:Pt(S.v,e.normed,r),o:p},C=u(tt(S.q,l("attention.q_proj.weight"),r),tt(S.k,l("attention.k_proj.\
weight"),r),tt(S.v,l("attention.v_proj.weight"),r));return{gradient:A,dInput:u(w,le(e.input,l("attention_norm.weight"),C))}}function Ks(s,t,e,o){let{heads:n,headDim:r}=s.
sizes,{q:a,k:i,v:h}=t,l=n*r,u=a.length/l,[d,f,m]=[new Float32Array(a.length),new Float32Array(a.length),new Float32Array(a.length)],w=new Float64Array(u);for(let p of gt(
e)){let y=1/Math.sqrt(p.length*r),[g,k]=[p[0]*r,p.length*r],M=t.weights[p[0]],S=e.merged||e.heads[p[0]].pattern===null;for(let A=0;A<u;A+=1){let C=0;for(let v=0;v<=
A;v+=1){let b=M[A*u+v],$=0;for(let L=g;L<g+k;L+=1){let W=o[A*l+L]*e.heads[Math.floor(L/r)].scale;$+=W*h[v*l+L],m[v*l+L]+=b*W}w[v]=$,C+=b*$}if(S)for(let v=0;v<=A;v+=
1){let b=M[A*u+v]*(w[v]-C)*y;for(let $=g;$<g+k;$+=1)d[A*l+$]+=b*i[v*l+$],f[v*l+$]+=b*a[A*l+$]}}}return{dq:d,dk:s.shared(f,e.kvHeads),dv:s.shared(m,e.kvHeads)}}var rs=new Map;function kt(s,t,e){let o=s.run(e),n=rs.get(e);if(n?.run!==o){let u=e==="before"?_(s.sizes):s.settings;n={run:o,found:ns(s.model,o,u)},rs.set(e,n)}
let{heads:r,headDim:a,width:i}=s.sizes,{q:h}=n.found[t],l=a*i;return Array.from({length:r},(u,d)=>{let f=0;for(let m=d*l;m<(d+1)*l;m+=1)f+=h[m]**2;return Math.sqrt(
f)})}function F(s,{layers:t,heads:e}){let o=/^L(\d+)H(\d+)$/.exec(s);if(!o)return null;let[n,r]=[Number(o[1]),Number(o[2])];return n<t&&r<e?[n,r]:null}var q=(s,t)=>`\
L${s}H${t}`,ce=s=>Array.from({length:s},(t,e)=>s-e).filter(t=>s%t===0),ct=s=>s.map(t=>({...t,heads:t.heads.map(e=>({...e}))}));function de(s){let t={scale:[],pattern:[],
merge:[],kv:[]};s.forEach(({heads:o,merged:n,kvHeads:r},a)=>{o.forEach(({scale:i,pattern:h},l)=>{i!==1&&t.scale.push(`${q(a,l)}:${Number(i.toFixed(2))}`),h&&t.pattern.
push(`${q(a,l)}:${h}`)}),n&&t.merge.push(String(a)),r!==o.length&&t.kv.push(`${a}:${r}`)});let e=Object.entries(t).map(([o,n])=>[o,n.join(",")]);return Object.fromEntries(
e.filter(([,o])=>o))}function as(s,t){let e=_(t),o=n=>(s[n]??"").split(",").map(r=>[...r.split(":"),"",""].slice(0,2));for(let[n,r]of o("scale")){let a=F(n,t),i=Number(
r);a&&r&&i>=0&&i<=1&&(e[a[0]].heads[a[1]].scale=i)}for(let[n,r]of o("pattern")){let a=F(n,t),i=wt.find(h=>h===r);a&&i&&(e[a[0]].heads[a[1]].pattern=i)}for(let[n]of o(
"merge"))/^\d+$/.test(n)&&e[Number(n)]&&(e[Number(n)].merged=!0);for(let[n,r]of o("kv"))!/^\d+$/.test(n)||!e[Number(n)]||ce(t.heads).includes(Number(r))&&(e[Number(
n)].kvHeads=Number(r));return e}var I=s=>new URLSearchParams(de(s)).toString(),is=s=>s.flatMap(({heads:t},e)=>t.flatMap(({scale:o,pattern:n},r)=>o!==1||n?[q(e,r)]:
[])),hs=s=>s.flatMap(({heads:t},e)=>t.flatMap(({scale:o},n)=>o===0?[q(e,n)]:[])),It=(s,{headDim:t})=>s.reduce((e,{kvHeads:o})=>e+2*o*t*2,0);var N=(s,t)=>s.card.heads[t]??[],vt=()=>q(0,0),V=s=>F(N(s,"induction")[0]??"",s.sizes)?.[0]??0,ue=s=>s.length>1?`${s.slice(0,-1).join(", ")} and ${s.at(-1)}`:s.
join(""),me=s=>`${Math.round(100*s)} %`,et=(s,t)=>s.changedHeads.every(e=>t.includes(e))&&s.settings.every(({merged:e,kvHeads:o,heads:n})=>!e&&o===n.length),fe=s=>s.
off.length===1&&et(s,s.off),Wt=(s,t)=>s.row("after").reduce((e,o,n)=>e+(t(n)?o:0),0),pe=s=>s.token===s.tokens.length-1;function st(s,t,e,o,n=1){let r=s.tokens.length-
1;return s.probability(t,e,r)>n*s.probability(t,o,r)}function we(s,t){let e=_(s.sizes);return e[t].kvHeads=Math.max(1,s.sizes.heads/2),e}var xe=Array(3).fill("whale key fat Ben men apple opened Kim today").join(" "),ls="<now> <town> the keys that the man near the door sees",Ht="<past> <sea> the s\
hips drifted . <now> <town> the doors behind the house",[ge,ye]=[["is","was"],["are","were"]],[be,ke]=[["is","are","opens","open","shines","shine"],["was","were",
"opened","shone"]],Gs={id:"merge",title:"One head or many",about:()=>"Merge the heads of a layer into one with the same W_Q, W_K, W_V and W_O. The one head adds\
 up the scores of all, so every part of the vector gets the same weights. When does that change the outputs?",text:xe,head:s=>N(s,"induction")[0],token:12,gradients:!0,
steps:[{text:s=>`Merge the heads of layer ${V(s)}: tick “one head” above its row.`,done:s=>s.settings[V(s)].merged},{text:()=>"Find a word, not the first, w\
here the merged head's outputs differ from those of the four heads by less than 15 %. There, all heads look at the same words.",done:s=>s.settings[V(s)].merged&&
s.token>0&&s.difference(V(s))<.15},{text:()=>"Now find one where they differ by more than 50 %. Compare where the heads look, one by one.",done:s=>s.settings[V(
s)].merged&&s.difference(V(s))>.5},{text:()=>"Separate the heads again (Undo or Reset). The table lists how strongly training on this text would change the W_Q \
of each head. Choose the head with the largest gradient in the grid.",done:s=>{let t=V(s);if(s.changed||s.layer!==t)return!1;let e=kt(s,t,"before");return e[s.head]===
Math.max(...e)}}],learned:()=>"One head and many agree only where all heads share one row of weights, and the row is saturated (nearly all weight on one word) o\
r uniform. That is always so at the first word, which can only look at itself. Elsewhere one pattern replaces several. The gradient shows the same: separate hea\
ds each get the gradient of their own scores; one head gets a single score gradient, the sum over all parts, and it reaches every part of W_Q."},Vs={id:"inducti\
on",title:"Previous word and induction",about:()=>"The text repeats nine words. After the first round the model continues it by heart: two heads in two layers w\
ork together.",text:xe,head:s=>N(s,"previous")[0],steps:[{text:s=>`Choose one of the induction heads (${ue(N(s,"induction"))}) and a word of the second round at\
 which it gives over half of its weight to the word after the earlier copy.`,done:s=>{let{round:t,token:e}=s;return t>0&&e>=t&&e<2*t-1&&N(s,"induction").includes(
s.headName)&&Wt(s,n=>n===e-t+2)>.5}},{text:()=>"Choose the head in an earlier layer that looks at the previous word: its map is a line beside the diagonal.",done:s=>N(
s,"previous").includes(s.headName)},{text:()=>"Break the pair: change nothing but this head, so that the model copies at most 70 % of what it copied.",done:s=>s.
changed&&et(s,N(s,"previous"))&&s.copied("after")<=.7*s.copied("before")},{text:()=>"Repair it by hand: switch the head on and set where it looks to “previous w\
ord”. Copying must be back at 90 % or more.",done:s=>et(s,N(s,"previous"))&&N(s,"previous").some(t=>{let[e,o]=F(t,s.sizes)??[0,0];return s.settings[e].heads[o].
pattern==="previous"})&&s.copied("after")>=.9}],learned:()=>"The earlier head writes into each word which word came before it. The induction heads look for the \
word that “came after me last time”. Only the pattern of the first head matters: set by hand, it does as well. Some copying survives without it, because a secon\
d head of that layer looks back, too."},Ys={id:"agreement",title:"Agreement over distance",about:()=>"“the keys that the man near the door sees”: the verb that \
comes next belongs to “keys”, seven words back, past two other nouns.",text:ls,head:vt,steps:[{text:()=>"Find a head that looks from the last word back to t\
he subject, “keys”, with more than half of its weight.",done:s=>pe(s)&&!s.changed&&Wt(s,t=>s.word(t)==="keys")>.5},{text:()=>"Switch off one head, so that “\
is” becomes likelier than “are” after the last word.",done:s=>fe(s)&&st(s,"before",ye,ge)&&st(s,"after",ge,ye)},{text:()=>"Switch it on again. Now delete \
one letter of the text, so that the intact model prefers “is”.",done:s=>!s.changed&&s.text.trim().length===ls.length-1&&st(s,"after",ge,ye,2)}],learned:s=>`${s.
card.agreement} carries the number of the subject to the verb. The nouns in between are nearer, and it looks past them.`},Qs={id:"delimiters",title:"Delimiters",
about:()=>"Marks such as <now> and <town> open a sentence and say its tense and place. Nearly every later word depends on them.",text:Ht,head:vt,steps:[{text:()=>"\
Find a head of the last layer that gives the marks of this sentence, <now> and <town>, at least 80 % of its weight from the last word.",done:s=>{let t=s.tokens.
map((o,n)=>n).filter(o=>o>0&&s.data.special.includes(s.word(o))).slice(-2);return pe(s)&&s.layer===s.sizes.layers-1&&!s.changed&&Wt(s,o=>t.includes(o))>=.8}},{text:()=>"\
Switch off one such head alone. The sentence says <now>, but verbs of the past must become likelier than verbs of the present. If they do not, find a different \
head that looks at the marks.",done:s=>fe(s)&&st(s,"before",be,ke)&&st(s,"after",ke,be)},{text:()=>"Reset the heads. Change one mark in the text, so that the in\
tact model prefers the past.",done:s=>!s.changed&&s.text.trim()!==Ht&&st(s,"after",ke,be,2)}],learned:s=>`${s.card.marks} fetches tense and place from the marks\
. In models of human language many heads look at delimiters too, often to rest there; here the marks say something.`},Js={id:"redundancy",title:"Redundancy",about:s=>`${N(
s,"induction").length} heads look at the word after the earlier copy: ${ue(N(s,"induction"))}. How many are needed?`,text:xe,head:s=>N(s,"induction")[0],steps:[
{text:()=>"Switch off one induction head. The model must still copy 90 % of the words.",done:s=>s.off.length===1&&N(s,"induction").includes(s.off[0])&&s.copied(
"after")>=.9},{text:()=>"Switch off all induction heads, and nothing else: it copies 10 % at most.",done:s=>{let t=N(s,"induction");return t.every(e=>s.off.includes(
e))&&et(s,t)&&s.copied("after")<=.1}},{text:()=>"Find two induction heads that are enough for 95 %: the others off.",done:s=>{let t=N(s,"induction");return t.filter(
o=>!s.changedHeads.includes(o)).length===2&&s.off.length===t.length-2&&et(s,t)&&s.copied("after")>=.95}}],learned:()=>"A head that is not missed alone may still\
 do necessary work that others do too. Importance of heads one by one therefore misleads: to see what a group does, remove the group."},Xs={id:"grouped",title:"\
Grouped-query",about:()=>"To generate text, a model stores keys and values of all earlier words (the KV cache). Heads that share them need less memory. Here hea\
ds that share use the mean of their keys and values, without training again.",text:Ht,head:vt,steps:[{text:()=>"Give one layer a single set of keys and values. \
Watch the cache and the loss.",done:s=>s.settings.some(({kvHeads:t})=>t===1)&&s.lossGrowth()!==null},{text:()=>"Which layer can share in pairs (2 sets) at the l\
owest cost? Try each layer alone, wait for its loss, and end with the best.",done:s=>{let t=s.settings.map((o,n)=>({key:I(we(s,n)),growth:s.lossGrowth(we(s,n))}));
if(t.some(({growth:o})=>o===null))return!1;let e=t.reduce((o,n)=>(n.growth??0)<(o.growth??0)?n:o);return I(s.settings)===e.key}},{text:()=>"Shrink the cache to \
a quarter, and read what it costs.",done:s=>s.cacheBytes<=It(_(s.sizes),s.sizes)/4&&s.lossGrowth()!==null}],learned:s=>{let t=s.lossGrowth();return`A quarter of\
 the cache, and the loss grows${t===null?"":` by ${me(t)}`}: heads with different jobs cannot share keys as they are. Real models are trained with shared keys a\
nd values, or trained further after their means are taken.`}},ve=(s,t)=>({text:()=>`Switch off ${s===1?"one head":`${s} heads`}, with a loss at most ${me(t)} hi\
gher.`,done:e=>{let o=e.lossGrowth();return e.off.length>=s&&et(e,e.off)&&o!==null&&o<=t}}),Zs={id:"pruning",title:"Pruning under a budget",about:s=>`Remove hea\
ds one by one. The page measures the mean loss over ${s.data.samples.length} sample texts each time.`,text:Ht,head:vt,steps:[ve(1,.02),ve(3,.06),ve(5,.15)],learned:()=>"\
Heads differ widely in what they are worth, and their costs do not add up: after each removal the order changes. That is why tools measure again, or correct the\
 remaining heads (multihead prune does)."},xt=[Gs,Vs,Ys,Qs,Js,Xs,Zs];function cs(s,t){s.lesson=t.id,s.text=t.text,s.chosen=t.token??null;let e=F(t.head(s)??"",s.
sizes);e&&([s.layer,s.head]=e),s.settings=ct(_(s.sizes)),s.past=[]}var Ft=class{constructor(t,e){this.session=t,this.changed=e,this.tabs=c("div",{class:"lessontabs",role:"group","aria-label":"lessons"}),this.tabs.append(c("butt\
on",{type:"button","data-lesson":""},"Free play"));for(let{id:o,title:n}of xt)this.tabs.append(c("button",{type:"button","data-lesson":o},n));this.tabs.addEventListener(
"click",o=>{let n=U(o,"button[data-lesson]");n&&this.open(n.dataset.lesson??"")}),this.panel=c("div",{class:"lesson"}),this.box=c("section",{class:"lessons","ar\
ia-label":"lessons"},this.tabs,this.panel)}reached({id:t,steps:e}){return Math.min(this.session.progress.get(t)??0,e.length)}get lesson(){return xt.find(({id:t})=>t===
this.session.lesson)??null}open(t){let e=xt.find(o=>o.id===t);e?(this.session.progress.delete(t),cs(this.session,e)):this.session.lesson="",this.changed()}choose(t){
this.session.chosen=t,this.changed()}check(){let{lesson:t,session:e}=this;if(!t)return;let o=this.reached(t);t.steps[o]?.done(e)&&(e.progress.set(t.id,o+1),D(o+
1===t.steps.length?`Lesson done. ${t.learned(e)}`:`Step ${o+1} done.`))}update(){this.check();let{lesson:t,session:e}=this;for(let a of this.tabs.querySelectorAll(
"button")){let i=a.dataset.lesson??"";a.setAttribute("aria-pressed",String(i===(t?.id??"")));let h=xt.find(l=>l.id===i);a.classList.toggle("done",h!==void 0&&this.
reached(h)===h.steps.length)}if(this.panel.hidden=!t,!t)return;let o=this.reached(t),n=o===t.steps.length,r=t.steps.map((a,i)=>{let h=i<o?"done":i===o?"now":"la\
ter",l=c("span",{class:"sign","aria-label":h==="done"?"done":null},h==="done"?"✓":`${i+1}`);return c("li",{class:h,"aria-current":h==="now"?"step":null},l,c("\
span",{},a.text(e)))});lt(this.panel,c("p",{class:"lead"},t.about(e)),c("ol",{class:"lessonsteps"},...r),n?c("p",{class:"learned"},c("b",{},"Done. "),t.learned(
e)):"",t.gradients?this.gradients():"")}gradients(){let{session:t}=this,{layer:e,sizes:o,token:n}=t,r=t.settings[e].merged,[a,i]=[kt(t,e,"before"),kt(t,e,"after")],
h=Array.from({length:o.heads},(f,m)=>{let w=t.row("before",q(e,m)),p=w.indexOf(w.reduce((k,M)=>Math.max(k,M))),y=`${t.word(p)} ${B(w[p])}`,g=r?c("td",{},z(i[m])):
null;return c("tr",{},c("th",{scope:"row"},q(e,m)),c("td",{},y),c("td",{},z(a[m])),g)}),l=c("tr",{},c("th",{scope:"col"},"head"),c("th",{scope:"col"},"looks mos\
t at"),c("th",{scope:"col"},"gradient of W_Q ",E("gradient")),r?c("th",{scope:"col"},"its part of W_Q, merged"):null),u=r?`After “${t.word(n)}”, the outputs o\
f layer ${e} differ by ${X(t.difference(e))} from those of separate heads.`:`Layer ${e} has separate heads.`,d=r?t.tokens.map((f,m)=>{let w=`${t.word(m)} ${Math.
round(100*t.difference(e,m))}`;return c("button",{type:"button",class:"suggestion",onclick:()=>this.choose(m)},w)}):[];return c("div",{class:"beside"},c("p",{class:"\
apart"},u),r?c("p",{class:"dim"},"Difference after each word, in percent:"):null,r?c("div",{class:"suggestions"},...d):null,c("table",{class:"gradients"},c("the\
ad",{},l),c("tbody",{},...h)))}};function to({q:s,k:t,dim:e},o,n,r,a){let i=o*e,h=i+e,l=n;for(;l+3<r;l+=4){let[u,d,f,m]=[0,0,0,0];for(let w=i,p=l*e;w<h;w+=1,p+=1){let y=s[w];u+=y*t[p],d+=y*t[p+
e],f+=y*t[p+2*e],m+=y*t[p+3*e]}a[l]=u,a[l+1]=d,a[l+2]=f,a[l+3]=m}for(;l<r;l+=1){let u=0;for(let d=i,f=l*e;d<h;d+=1,f+=1)u+=s[d]*t[f];a[l]=u}}function ds(s,t,e){
let{bias:o,softcap:n,sink:r}=s,[a,i,h]=[s.first[t],s.end[t],s.first.length-1-t];e.fill(0),to(s,t,a,i,e);let l=r===void 0?-1/0:r;for(let d=a;d<i;d+=1)n!==void 0&&
(e[d]=n*Math.tanh(e[d]/n)),o&&(e[d]+=o[d+h]),e[d]>l&&(l=e[d]);let u=r===void 0?0:Math.exp(r-l);for(let d=a;d<i;d+=1)e[d]=Math.exp(e[d]-l),u+=e[d];for(let d=a;d<
i;d+=1)e[d]/=u;return e}var eo=40,so=()=>new Promise(s=>setTimeout(s)),$e=s=>255*Math.sqrt(s)+.5,dt=class s{constructor(t,e,o){this.name=t,this.queries=o.queries,this.keys=o.keys,this.
rows=e.sequences[o.rows],this.columns=e.sequences[o.columns],this.square=o.rows===o.columns,this.coded=null,this.qk=null,this.norms=null,this.completing=null}static async read(t,e,o,n,r){
let a=new s(t,e,o);return n.map!==void 0?a.coded=await J(n.map):a.qk=await oo(n),o.norms!==null&&(a.norms=ot(await J(o.norms)).subarray(r*o.keys,(r+1)*o.keys)),
a}static fromWeights(t,e,o){let n=e.shown.length,r={label:"",queries:n,keys:n,rows:0,columns:0,norms:null,heads:[]};return s.fromCodes(t,{sequences:[e]},r,Uint8Array.
from(o,$e))}static fromCodes(t,e,o,n){let r=new s(t,e,o);return r.coded=n,r}complete(){return this.completing??=this.computeAll(),this.completing}async computeAll(){
if(this.coded)return;let t=new Uint8Array(this.queries*this.keys),e=performance.now();for(let o=0;o<this.queries;o+=1){let n=this.row(o);for(let r=0,a=o*this.keys;r<
this.keys;r+=1)t[a+r]=$e(n[r]);performance.now()-e>eo&&(await so(),e=performance.now())}this.coded=t}get bytes(){return(this.coded?.length??0)+(this.qk?4*(this.
qk.q.length+this.qk.k.length):0)}row(t){let e=new Float32Array(this.keys);if(this.qk)return ds(this.qk,t,e);if(this.coded)for(let o=0;o<this.keys;o+=1)e[o]=(this.
coded[t*this.keys+o]/255)**2;return e}column(t){let e=new Float32Array(this.queries),o=this.coded;if(o)for(let n=0;n<this.queries;n+=1)e[n]=(o[n*this.keys+t]/255)**
2;return e}weights(t,e){return t?this.row(e):this.column(e)}async preview(t){if(this.coded)return{coded:this.coded,queries:this.queries,keys:this.keys};let e=Math.
min(t,this.queries),o=new Uint8Array(e*this.keys);for(let n=0;n<e;n+=1){let r=this.row(Math.floor((n+.5)*this.queries/e));for(let a=0;a<this.keys;a+=1)o[n*this.
keys+a]=$e(r[a])}return{coded:o,queries:e,keys:this.keys}}reweighted(t,e){let o=t?this.norms:null,n=e&&this.columns.special.some(Boolean);if(!o&&!n)return this;
let r=new Float32Array(this.keys).fill(1);for(let i=0;i<this.keys;i+=1)o&&(r[i]=o[i]),n&&this.columns.special[i]&&(r[i]=0);let a=Object.create(this);return a.row=
i=>no(this.row(i),r),this.coded&&(a.coded=ro(this.coded,this.queries,this.keys,r)),a}};async function oo(s){let{q:t,k:e,first:o,end:n,dim:r}=s,a=await Promise.all(
[t,e,o,n].map(J)),i=s.wide?ot:Tt;return{q:i(a[0]),k:i(a[1]),first:Jt(a[2]),end:Jt(a[3]),dim:r,bias:s.bias===void 0?null:ot(await J(s.bias)),softcap:s.softcap,sink:s.
sink}}function no(s,t){let e=0;for(let o=0;o<s.length;o+=1)s[o]*=t[o],e+=s[o];if(e>0)for(let o=0;o<s.length;o+=1)s[o]/=e;return s}function ro(s,t,e,o){let n=new Uint8Array(
s.length);for(let r=0;r<t;r+=1){let a=r*e,i=0;for(let h=0;h<e;h+=1)i+=s[a+h]**2*o[h];if(i!==0)for(let h=0;h<e;h+=1)n[a+h]=Math.round(s[a+h]*Math.sqrt(o[h]/i*255*
255))}return n}function us(s,t,e,o){let n=new Int32Array(o+1);for(let r=0;r<=o;r+=1)n[r]=Math.min(e,Math.floor(s+r/o*t+1e-9));return n}function ms({coded:s,keys:t,queries:e},o,n,r){
let a=De(),i=new ImageData(n,r),h=new Uint32Array(i.data.buffer),l=us(o.x,o.w,t,n),u=us(o.y,o.h,e,r),d=new Uint8Array(n),f=-1;for(let m=0;m<r;m+=1){let[w,p]=[u[m],
Math.max(u[m]+1,u[m+1])],y=w===f&&p===w+1,g=m*n;if(y){h.copyWithin(g,g-n,g);continue}d.fill(0);for(let k=w;k<p&&k<e;k+=1)for(let M=0,S=k*t;M<n;M+=1){let A=Math.
min(t,Math.max(l[M]+1,l[M+1])),C=d[M];for(let v=l[M];v<A;v+=1)s[S+v]>C&&(C=s[S+v]);d[M]=C}f=p===w+1?w:-1;for(let k=0;k<n;k+=1)h[g+k]=a[d[k]]}return i}function Me(s){O("trouble").textContent=s,O("trouble").hidden=!s}async function ao(s,t){try{return await fetch(s,{...t,cache:"no-store"})}catch(e){throw Te(e)||
Me("The server does not answer. Is multihead serve still running?"),e}}async function io(s,t,e){let o=Object.entries(t).map(([r,a])=>[r,String(a)]),n=await ao(`${s}\
?${new URLSearchParams(o)}`,{signal:e});if(!n.ok){let r=await n.text();throw Me(r),new Error(r)}return Me(""),n}async function Dt(s,t,e){let o=await io(s,t,e);return new Uint8Array(
await o.arrayBuffer())}var Te=s=>s instanceof DOMException&&s.name==="AbortError";var fs=4096,ho=256,lo=120,$t=class s extends dt{constructor(t,e,o,n){super(t,e,o),this.where=n,this.lines=new Map,this.overview=null,this.latest=null,this.asking=
null,this.controller=null,this.timer=0,this.variants=new Map,this.source=[t,e,o]}complete(){return Promise.resolve()}get bytes(){return 4*this.keys*this.lines.size+
2e6}reweighted(t,e){if(!t&&!e)return this;let o=`${t} ${e}`,n=this.variants.get(o);if(!n){let r={...this.where,...t?{norm:1}:{},...e?{hide:1}:{}};n=new s(...this.
source,r),this.variants.set(o,n)}return n}weights(t,e){return this.lines.get(`${t?"row":"column"} ${e}`)??null}async fetchWeights(t,e){let o=this.weights(t,e);if(o)
return o;let n=t?"row":"column",r=ot(await Dt(n,{...this.where,i:e}));return this.lines.size>=ho&&this.lines.delete(this.lines.keys().next().value??""),this.lines.
set(`${n} ${e}`,r),r}picture(t,e,o,n){let[r,a]=[Math.floor(t.x),Math.floor(t.y)],i=Math.min(this.keys,Math.ceil(t.x+t.w-1e-9))-r,h=Math.min(this.queries,Math.ceil(
t.y+t.h-1e-9))-a,l={width:Math.min(i,e,fs),height:Math.min(h,o,fs)},u={x:r,y:a,w:i,h,...l},d=Object.values(u).join(" ");return this.latest?.key===d?this.latest:
this.overview?.key===d?this.overview:(this.asking!==d&&(this.cancel(),this.asking=d,this.timer=window.setTimeout(()=>this.fetchPicture(u,d,n),this.overview?lo:0)),
this.overview)}async fetchPicture(t,e,o){this.controller=new AbortController;try{let n=await Dt("map",{...this.where,...t},this.controller.signal);this.latest={
key:e,part:t,coded:n,keys:t.width,queries:t.height},t.w===this.keys&&t.h===this.queries&&(this.overview=this.latest),this.asking=null,o()}catch(n){this.asking===
e&&(this.asking=null),Te(n)||D(String(n))}}cancel(){clearTimeout(this.timer),this.controller?.abort(),this.asking=null}async preview(t){let[e,o]=[Math.min(t,this.
keys),Math.min(t,this.queries)],n={x:0,y:0,w:this.keys,h:this.queries,width:e,height:o,thin:1};return{coded:await Dt("map",{...this.where,...n}),keys:e,queries:o}}};
function ps({part:s,keys:t,queries:e},o){let[n,r]=[t/s.w,e/s.h];return{x:(o.x-s.x)*n,y:(o.y-s.y)*r,w:o.w*n,h:o.h*r}}var co=104,uo=22,ws=11,mo=720,gs=4,Ut=class{constructor({point:t,pick:e,drawn:o}){this.point=t,this.pick=e,this.drawn=o,this.map=null,this.window={x:0,y:0,w:1,h:1},
this.mark={row:null,column:null},this.width=0,this.height=0,this.room=0,this.type=1,this.dragged=!1,this.painted=null,this.pointers=new Map,this.canvas=c("canva\
s",{class:"map",role:"img",tabindex:"-1"}),this.box=c("div",{class:"mapbox"},this.canvas),this.canvas.addEventListener("wheel",n=>this.onWheel(n),{passive:!1}),
this.canvas.addEventListener("pointerdown",n=>this.onDown(n)),this.canvas.addEventListener("pointermove",n=>this.onMove(n)),this.canvas.addEventListener("pointe\
rup",n=>this.onUp(n)),this.canvas.addEventListener("pointercancel",n=>this.pointers.delete(n.pointerId)),this.canvas.addEventListener("pointerleave",()=>this.point(
null)),this.canvas.addEventListener("dblclick",()=>this.showAll())}get labels(){return Math.round(co*this.type)}get place(){return{left:this.labels,width:this.width,
window:this.window}}show(t){let e=this.map&&this.map.queries===t.queries&&this.map.keys===t.keys;this.map=t,e||(this.window={x:0,y:0,w:t.keys,h:t.queries});let o=`${t.
queries} queries down, ${t.keys} keys across`,n=`Attention map of ${t.name}: ${o}. The text below has the same weights.`;this.canvas.setAttribute("aria-label",n)}clear(){
ht(this.canvas,this.canvas.clientWidth,this.canvas.clientHeight)}showAll(){this.map&&(this.window={x:0,y:0,w:this.map.keys,h:this.map.queries},this.draw())}zoom(t,e=this.
width/2,o=this.height/2){let{map:n,window:r}=this;if(!n)return;let[a,i]=[r.x+e/this.width*r.w,r.y+o/this.height*r.h],h=Math.max(Math.min(gs,n.keys),Math.min(n.keys,
r.w/t)),l=Math.max(Math.min(gs,n.queries),Math.min(n.queries,r.h/t));this.window={w:h,h:l,x:a-e/this.width*h,y:i-o/this.height*l},this.draw()}clampWindow(){let{
map:t,window:e}=this;t&&(e.x=Math.max(0,Math.min(t.keys-e.w,e.x)),e.y=Math.max(0,Math.min(t.queries-e.h,e.y)))}onWheel(t){if(t.deltaY>0&&this.window.w>=(this.map?.
keys??0)&&!t.ctrlKey&&!t.metaKey)return;t.preventDefault();let[o,n]=Q(t,this.canvas);this.zoom(Math.exp(-t.deltaY/300),o-this.labels,n-this.labels)}onDown(t){this.
canvas.setPointerCapture(t.pointerId),this.pointers.set(t.pointerId,Q(t,this.canvas)),this.dragged=!1}onMove(t){let e=Q(t,this.canvas),o=this.pointers.get(t.pointerId);
if(!o){this.point(this.cellAt(e));return}let n=[...this.pointers].find(([r])=>r!==t.pointerId)?.[1];if(n){let r=h=>Math.hypot(h[0]-n[0],h[1]-n[1]),[a,i]=[(e[0]+
n[0])/2-this.labels,(e[1]+n[1])/2-this.labels];this.dragged=!0,this.zoom(r(e)/Math.max(1,r(o)),a,i)}else if(this.dragged||Math.hypot(e[0]-o[0],e[1]-o[1])>4)this.
dragged=!0,this.window.x-=(e[0]-o[0])/this.width*this.window.w,this.window.y-=(e[1]-o[1])/this.height*this.window.h,this.draw();else return;this.pointers.set(t.
pointerId,e)}onUp(t){if(this.pointers.delete(t.pointerId),this.dragged)return;let e=this.cellAt(Q(t,this.canvas));e&&this.pick(e)}cellAt([t,e]){let{map:o,window:n}=this;
if(!o||t<this.labels||e<this.labels)return null;let r=Math.floor(n.x+(t-this.labels)/this.width*n.w),a=Math.floor(n.y+(e-this.labels)/this.height*n.h);return a>=
0&&r>=0&&a<o.queries&&r<o.keys?[a,r]:null}observeRoom(){let t=()=>{let e=this.box.clientWidth;return e===this.room?!1:(this.room=e,this.type=Ze(),!0)};t(),new ResizeObserver(
()=>t()&&this.draw()).observe(this.box)}draw(){let{map:t}=this;if(!t)return;this.clampWindow(),this.room||this.observeRoom(),this.width=Math.max(80,Math.min(this.
room||560,this.type*mo)-this.labels),this.height=Math.max(80,Math.min(1.6*this.width,this.width*t.queries/t.keys));let e=ht(this.canvas,this.width+this.labels,this.
height+this.labels),o=Math.round(this.labels*bt()),n=this.paint(t);this.canvas.toggleAttribute("data-waiting",t instanceof $t&&t.asking!==null),n&&e.putImageData(
n,o,o),this.drawFrame(e,t),this.drawMarks(e),this.drawn()}paint(t){let e=bt(),[o,n]=[Math.round(this.width*e),Math.round(this.height*e)],r=()=>this.box.isConnected&&
this.draw(),a=t instanceof $t?t.picture(this.window,o,n,r):null,i=t.coded??a?.coded;if(!i)return null;let h=[...Object.values(this.window),o,n].join(" ");if(this.
painted?.key!==h||this.painted.from!==i){let l=a??{coded:i,keys:t.keys,queries:t.queries},u=a?ps(a,this.window):this.window;this.painted={key:h,from:i,image:ms(
l,u,o,n)}}return this.painted.image}drawFrame(t,e){let{window:o,width:n,height:r,labels:a,type:i}=this,[h,l]=[n/o.w,r/o.h];t.strokeStyle=H("--line"),t.strokeRect(
a-.5,a-.5,n+1,r+1),t.font=`600 ${12*i}px ${Nt}`,t.fillStyle=H("--ink"),t.textBaseline="middle",t.textAlign="center",t.fillText(n<180*i?"key":"key: the token loo\
ked at",a+n/2,8*i),ae(t,r<180*i?"query":"query: the token that looks",8*i,a+r/2),t.textAlign="right";let u=(m,w,p)=>(t.fillStyle=H(p?"--ink":w?"--faint":"--dim"),
t.font=`${p?"600 ":""}${11*i}px ${Nt}`,fo(t,m,a-(uo+8)*i)),d=Math.max(1,Math.ceil(i*ws/l));for(let m=Math.ceil(o.y/d-1e-9)*d;m<Math.min(e.queries,o.y+o.h);m+=d){
let w=a+(m+.5-o.y)*l;w<a+2||w>a+r-2||t.fillText(u(e.rows.shown[m],e.rows.special[m],m===this.mark.row),a-6,w)}t.textAlign="left";let f=Math.max(1,Math.ceil(i*ws/
h));for(let m=Math.ceil(o.x/f-1e-9)*f;m<Math.min(e.keys,o.x+o.w);m+=f){let w=a+(m+.5-o.x)*h;if(w<a+2||w>a+n-2)continue;let p=u(e.columns.shown[m],e.columns.special[m],
m===this.mark.column);ae(t,p,w,a-6)}}drawMarks(t){let{window:e,width:o,height:n,labels:r}=this,{row:a,column:i}=this.mark,[h,l]=[o/e.w,n/e.h];t.save(),t.beginPath(),
t.rect(r,r,o,n),t.clip(),t.strokeStyle=H("--mark"),t.lineWidth=1.5,a!==null&&t.strokeRect(r-2,r+(a-e.y)*l,o+4,Math.max(2,l)),i!==null&&t.strokeRect(r+(i-e.x)*h,
r-2,Math.max(2,h),n+4),t.restore()}savePng(){let{map:t}=this;if(!t)return;let e=c("canvas",{width:this.canvas.width,height:this.canvas.height}),o=it(e);o.fillStyle=
H("--paper"),o.fillRect(0,0,e.width,e.height),o.drawImage(this.canvas,0,0),e.toBlob(n=>n&&Ce(n,`${t.name}.png`))}};function fo(s,t,e){let o=nt(t,18);for(;o.length>
2&&s.measureText(o).width>e;)o=`${Array.from(o).slice(0,-2).join("")}…`;return o}var po=["before","after"],wo="Point at a square to read its weight; click it to choose its row.",Bt=class{constructor(t,e,o="trained model"){this.read=e,this.names=
{before:o,after:"with your switches"},this.title=c("h2",{}),this.said=c("p",{class:"cellnote"}),this.panes=po.map(a=>{let i=new Ut({point:l=>this.say(a,l),pick:([
l])=>t(l),drawn:()=>{}}),h=c("h3",{},this.names[a]);return{which:a,view:i,name:h,box:c("div",{class:"pane"},h,i.box)}});let[n,r]=this.panes;this.box=c("section",
{class:"maps"},c("div",{class:"inputtop"},this.title,E("attention map")),c("div",{class:"panes"},n.box,r.box),this.said)}update(t,e,o,n){this.title.textContent=
`Where ${t} looks`;for(let{which:r,view:a,box:i}of this.panes){let h=o[r];i.hidden=!h,h&&(a.show(h),a.canvas.setAttribute("aria-label",`Attention map of ${t}, ${this.
names[r]}. ${n}`),a.mark={row:e,column:null},a.draw())}this.say("after",null)}say(t,e){this.said.textContent=e?this.read(t,e):wo}};var Kt=class{constructor(t,e){this.session=t,this.pair=new Bt(e,(o,n)=>this.read(o,n)),this.box=this.pair.box}update(){let{changed:t,headName:e,token:o}=this.session,
n={before:this.map("before"),after:t?this.map("after"):null};this.pair.update(e,o,n,"The computation below has its rows as numbers.")}map(t){let{session:e}=this,
{layer:o,head:n,headName:r}=e,a={shown:e.tokens.map((i,h)=>e.word(h)),joined_to_previous:e.tokens.map(()=>!1),special:e.tokens.map((i,h)=>e.data.special.includes(
e.word(h)))};return dt.fromWeights(r,a,e.run(t).layers[o].weights[n])}read(t,e){let{session:o}=this;if(e[1]>e[0])return"A word cannot look at later words.";let n=o.
row(t,o.headName,e[0])[e[1]],[r,a]=e.map(i=>`“${o.word(i)}”`);return`${r} looks at ${a} with weight ${B(n)}`}resize(){this.update()}};var go=24;function ks(s,t,e="trained model"){return[...s.map(({word:n,before:r,after:a,actual:i})=>c("div",{class:i?"guess actual":"guess","data-word":n},c("spa\
n",{class:"guessed"},n,i?c("small",{}," (in the text)"):null),c("span",{class:"barpair"},bs("before",r),t?bs("after",a):null),c("span",{class:"chance"},ys(r),t?
c("b",{},ys(a)):null))),yo(t,e)]}var yo=(s,t)=>c("p",{class:"dim legendline"},c("span",{class:"swatch before"}),s?` ${t}`:` ${t}: no switch is changed`,s?c("spa\
n",{class:"swatch after"}):null,s?" with your switches":null);function vs(s,t,e,o){let n=e.slice(0,go).map(({token:i,text:h})=>c("button",{type:"button",class:"\
suggestion",onclick:()=>o(i)},h)),r=e.length-n.length,a=r>0?c("span",{class:"dim"},` and ${r} more`):"";lt(s,c("p",{},t),...n,a)}var ys=s=>s<.001?"< 0.1 %":X(s,
s<.01?1:2);function bs(s,t){let e=c("span",{class:`bar ${s}`});return e.style.width=`${Math.max(.5,100*t)}%`,e}var xs=8,Gt=class{constructor(t,e){this.session=t,this.choose=e,this.title=c("h2",{}),this.bars=c("div",{class:"predictions"}),this.list=c("div",{class:"changes"}),
this.box=c("section",{class:"prediction","aria-label":"next word"},c("div",{class:"inputtop"},this.title,E("next word")),this.bars,this.list)}update(){let{session:t}=this,
{words:e}=t.data,o=t.token*e.length,[n,r]=[t.before,t.after].map(u=>u.probabilities.subarray(o,o+e.length)),a=e.map((u,d)=>d).sort((u,d)=>Math.max(n[d],r[d])-Math.
max(n[u],r[u])),i=t.tokens[t.token+1]?.id,h=a.slice(0,xs);i!==void 0&&!h.includes(i)&&(h[xs-1]=i),this.title.textContent=`Next word after “${t.word(t.token)}”`;
let l=h.map(u=>({word:e[u],before:n[u],after:r[u],actual:u===i}));this.bars.replaceChildren(...ks(l,t.changed)),this.drawChanges()}drawChanges(){let{session:t}=this;
if(!t.changed){this.list.replaceChildren();return}let e=t.changedGuesses,[o,n]=[t.guesses("before"),t.guesses("after")],r=e.length?`Likeliest next word changed \
after ${e.length} of ${t.tokens.length} words:`:"The likeliest next word is the same everywhere.",{words:a}=t.data,i=e.map(h=>({token:h,text:`${t.word(h)}: ${a[o[h]]}\
 → ${a[n[h]]}`}));vs(this.list,r,i,this.choose)}};var bo=()=>new Promise(s=>setTimeout(s)),Vt=class{constructor(t,e){this.session=t,this.done=e,this.turn=0;let{tokenizer:o,data:n}=t;this.texts=n.samples.map(r=>o.
read(r).map(({id:a})=>a))}async measure(){let{session:t}=this;this.turn+=1;let e=this.turn;for(let o of[void 0,ct(t.settings)]){let n=o?I(o):"";if(t.losses.has(
n))continue;let[r,a]=[0,0];for(let i of this.texts){if(await bo(),e!==this.turn)return;r+=qt(t.model.run(i,o))*(i.length-1),a+=i.length-1}t.losses.set(n,r/a),this.
done()}}};var ko=200,Yt=class{constructor(t,e){this.data=t,this.model=e,this.sizes=t.sizes,this.card=t.card,this.tokenizer=new Rt(t.words),this.text="",this.chosen=null,this.
layer=0,this.head=0,this.settings=_(this.sizes),this.lesson="",this.progress=new Map,this.past=[],this.losses=new Map,this.tokens=[],this.dropped=0,this.before=
e.run([this.tokenizer.begin]),this.after=this.before,this.took=0,this.computed={text:"",settings:""}}compute(){let t=I(this.settings);if(this.tokens.length&&this.
computed.text===this.text&&this.computed.settings===t)return;let e=performance.now();if(!this.tokens.length||this.computed.text!==this.text){let o=this.tokenizer.
read(this.text);this.tokens=o.slice(0,this.data.context),this.dropped=o.length-this.tokens.length,this.before=this.model.run(this.tokens.map(({id:n})=>n))}this.
after=t?this.model.run(this.before.ids,this.settings):this.before,this.computed={text:this.text,settings:t},this.took=performance.now()-e}get token(){return Math.
min(this.chosen??1/0,this.tokens.length-1)}get headName(){return q(this.layer,this.head)}get changed(){return I(this.settings)!==""}switch(t){let e=ct(this.settings);
t(e),I(e)!==I(this.settings)&&(this.past.push(this.settings),this.past.length>ko&&this.past.shift(),this.settings=e)}undo(){this.settings=this.past.pop()??this.
settings}get hash(){let t=new URLSearchParams({text:this.text,head:this.headName,...de(this.settings)});return this.chosen!==null&&t.set("token",String(this.chosen)),
this.lesson&&t.set("lesson",this.lesson),this.progress.size&&t.set("done",[...this.progress].map(([e,o])=>`${e}:${o}`).join(",")),`#${t}`}restore(t){let e=Object.
fromEntries(new URLSearchParams(t.replace(/^#/,"")));e.text!==void 0&&(this.text=e.text);let o=Number(e.token);this.chosen=e.token&&Number.isInteger(o)&&o>=0?o:
null;let n=F(e.head??"",this.sizes);n&&([this.layer,this.head]=n),this.settings=as(e,this.sizes),this.lesson=e.lesson??"",this.progress.clear();for(let r of(e.done??
"").split(",")){let[,a,i]=/^([a-z]+):(\d{1,2})$/.exec(r)??[];a&&this.progress.set(a,Number(i))}}run(t){return this[t]}word(t){return this.data.words[this.tokens[t].
id]}probability(t,e,o=this.token){let n=o*this.sizes.words;return e.map(a=>this.tokenizer.ids.get(a)??-1).reduce((a,i)=>a+(this.run(t).probabilities[n+i]??0),0)}row(t,e=this.
headName,o=this.token){let[n,r]=F(e,this.sizes)??[0,0],a=this.tokens.length;return this.run(t).layers[n].weights[r].subarray(o*a,o*a+o+1)}guesses(t){return Ve(this.
run(t))}get changedGuesses(){let[t,e]=[this.guesses("before"),this.guesses("after")];return t.flatMap((o,n)=>o===e[n]?[]:[n])}get round(){let t=this.before.ids;
for(let e=2;2*e<t.length;e+=1)if(t.slice(1+e).every((o,n)=>o===t[1+n]))return 1+e;return 0}copied(t){let{round:e}=this,o=e?this.guesses(t).slice(e,-1):[];return o.
length?o.filter((n,r)=>n===this.before.ids[e+r+1]).length/o.length:NaN}loss(t){return qt(this.run(t))}get off(){return hs(this.settings)}get changedHeads(){return is(
this.settings)}get cacheBytes(){return It(this.settings,this.sizes)}lossGrowth(t=this.settings){let[e,o]=[this.losses.get(""),this.losses.get(I(t))];return e===
void 0||o===void 0?null:o/e-1}difference(t,e=this.token){let o=this.sizes.heads*this.sizes.headDim,[n,r]=[this.before.layers[t].outputs,this.after.layers[t].outputs],
[a,i]=[0,0];for(let h=e*o;h<(e+1)*o;h+=1)a+=(r[h]-n[h])**2,i+=n[h]**2;return Math.sqrt(a/i)}};var $s={uniform:"all words equally",previous:"previous word",first:"first word"},Qt=class{constructor(t,e,o=n=>`Layer ${n}`){this.layers=t,this.title=o,this.handlers=
e,this.cells=t.map((a,i)=>a.map((h,l)=>this.cell(h,i,l))),this.bars=t.map((a,i)=>this.bar(i,a.length)),this.pattern=c("select",{"aria-label":"where the chosen h\
ead looks"}),this.pattern.append(c("option",{value:""},"as it was trained"),...wt.map(a=>c("option",{value:a},$s[a]))),this.pattern.addEventListener("change",()=>{
let a=wt.find(i=>i===this.pattern.value)??null;e.pattern?.(this.at[0],this.at[1],a)}),this.patternName=c("span",{});let n=c("div",{class:"choice detail"},c("lab\
el",{},this.patternName,this.pattern));n.append(E("pattern by hand"));let r=t.map((a,i)=>{let h=c("div",{class:"switchrow"},...this.cells[i].map(({box:l})=>l));
return h.style.setProperty("--heads",String(a.length)),c("div",{class:"switchlayer"},this.bars[i].box,h)});this.box=c("div",{class:"switches"},...r,e.pattern?n:
null),this.kinds=vo(t.flat()),this.at=[0,0]}cell({name:t,shown:e,kind:o,label:n},r,a){let i=c("span",{class:"dot"});o&&(i.style.backgroundColor=te(o));let h=c("\
button",{type:"button",class:"headname","data-head":t,onclick:()=>this.handlers.select(r,a)},c("b",{},i,e??t),o?c("small",{},n??o):null),l=c("input",{type:"chec\
kbox","aria-label":`${t} on`,"data-switch":t});l.addEventListener("change",()=>this.handlers.scale(r,a,l.checked?1:0));let u=c("input",{type:"range",min:0,max:1,
step:.05,"aria-label":`strength of ${t}`,"data-scale":t,oninput:()=>{d.textContent=B(Number(u.value)),this.handlers.scale(r,a,Number(u.value))}}),d=c("span",{class:"\
strength"});return{box:c("div",{class:"switch"},c("div",{class:"switchtop"},h,l),u,d),choose:h,on:l,slider:u,value:d}}bar(t,e){let o=c("input",{type:"checkbox",
"data-merge":t});o.addEventListener("change",()=>this.handlers.merge?.(t,o.checked));let n=c("select",{"data-share":t});for(let i of ce(e))n.append(c("option",{
value:i},String(i)));n.addEventListener("change",()=>this.handlers.share?.(t,Number(n.value)));let r=t===0;return{box:c("div",{class:"layerbar"},c("b",{},this.title(
t)),this.handlers.merge?c("span",{class:"toggle"},c("label",{},o,c("span",{},"one head")),r?E("one head"):null):null,this.handlers.share?c("span",{class:"choice"},
c("label",{},c("span",{},"keys/values"),n),r?E("keys/values"):null):null),merge:o,share:n}}update(t,e,o){this.at=[e,o],this.cells.forEach((n,r)=>n.forEach(({box:a,
choose:i,on:h,slider:l,value:u},d)=>{let{scale:f,pattern:m}=t[r].heads[d];h.checked=f>0,l.value=String(f),u.textContent=m?$s[m]:B(f),a.classList.toggle("isoff",
f===0),a.classList.toggle("changed",f!==1||m!==null),i.setAttribute("aria-pressed",String(r===e&&d===o))})),this.bars.forEach(({merge:n,share:r},a)=>{n.checked=
t[a].merged,r.value=String(t[a].kvHeads)}),this.pattern.value=t[e].heads[o].pattern??"",this.pattern.disabled=t[e].merged,this.patternName.textContent=`${this.layers[e][o].
name} looks`}};function vo(s){let t=new Map;for(let n of s){let r=n.group??n.label;r&&!t.has(r)&&t.set(r,n)}let e=[...t].map(([n,{kind:r,meaning:a}])=>{let i=c(
"span",{class:"dot"});return r&&(i.style.backgroundColor=te(r)),c("span",{class:"kindkey"},i,n," ",E(n,a))}),o=c("span",{class:"dim"},"Kinds ",E("kind"));return e.
length?c("p",{class:"kindkeys"},o,...e):null}function Ms(s,t){let e=Tt(s),o=0;return Object.fromEntries(t.map(([n,r])=>[n,e.slice(o,o+=r)]))}var xo=250,$o=100,Mo="<now> <town> the keys that the man near the door sees",Ae=class{constructor(t){this.values=new Map(t.map(([,e])=>[e,c("dd",{"data-fact":e})])),
this.box=c("dl",{class:"facts"});for(let[e,o]of t)this.box.append(c("div",{},c("dt",{},e," ",E(o)),this.values.get(o)))}show(t,e){let o=this.values.get(t);o&&(o.
textContent=e,o.parentElement?.toggleAttribute("hidden",e===null))}};function To({kinds:s,meanings:t},e){let o=At(s[e]).map(n=>Pe(`${n.name}: ${n.meaning}`));return t[e]??
o.join(" ")}var Ee=class{constructor(t){this.session=t;let e=()=>this.changed(),o=a=>{t.chosen=a,e()};this.lessons=new Ft(t,e),this.input=new jt(t,e),this.predictions=
new Gt(t,o),this.maps=new Kt(t,o),this.computation=new _t(t,a=>{t.layer=a,e()}),this.switches=this.makeSwitches(),this.undo=c("button",{type:"button",id:"undo",
onclick:()=>this.act(()=>t.undo())},"Undo");let n=()=>this.act(()=>t.switch(a=>a.splice(0,a.length,..._(t.sizes))));this.reset=c("button",{type:"button",id:"res\
et",onclick:n},"Reset"),this.facts=new Ae([["heads on","head"],[`mean loss over ${t.data.samples.length} sample texts`,"mean loss"],["KV cache","KV cache"],["wo\
rds copied","words copied"]]);let r=c("section",{class:"heads","aria-label":"heads"},c("div",{class:"inputtop"},c("h2",{},"Heads"),E("head"),this.undo,this.reset),
this.switches.box,this.switches.kinds,this.facts.box);O("main").replaceChildren(this.lessons.box,this.input.box,c("div",{class:"two"},r,this.predictions.box),this.
maps.box,this.computation.box),this.samples=new Vt(t,()=>this.measured()),this.addressTimer=0,this.measureTimer=0,this.frame=0}makeSwitches(){let{session:t}=this,
{layers:e,heads:o}=t.sizes,n=Array.from({length:e},(a,i)=>Array.from({length:o},(h,l)=>({name:q(i,l),kind:t.card.kinds[q(i,l)],label:t.card.labels[q(i,l)],meaning:To(
t.card,q(i,l))}))),r=a=>this.act(()=>t.switch(a));return new Qt(n,{select:(a,i)=>this.act(()=>{t.layer=a,t.head=i}),scale:(a,i,h)=>r(l=>{l[a].heads[i].scale=h}),
pattern:(a,i,h)=>r(l=>{l[a].heads[i].pattern=h}),merge:(a,i)=>r(h=>{h[a].merged=i}),share:(a,i)=>r(h=>{h[a].kvHeads=i})})}act(t){t(),this.changed()}changed(){delete document.
body.dataset.ready,!this.frame&&(this.frame=requestAnimationFrame(()=>{this.frame=0,this.update()}))}update(){let{session:t}=this;t.compute(),this.input.update(),
this.switches.update(t.settings,t.layer,t.head),this.undo.disabled=!t.past.length,this.reset.disabled=!t.changed,this.predictions.update(),this.maps.update(),this.
computation.update(),this.lessons.update(),this.drawFacts(),clearTimeout(this.addressTimer),this.addressTimer=window.setTimeout(()=>this.writeAddress(),xo),clearTimeout(
this.measureTimer),this.measureTimer=window.setTimeout(()=>this.samples.measure(),$o),document.body.dataset.took=t.took.toFixed(1),document.body.dataset.ready="\
play"}measured(){this.drawFacts(),this.lessons.update()}writeAddress(){try{history.replaceState(null,"",this.session.hash)}catch{}}drawFacts(){let{session:t}=this,
e=t.sizes.layers*t.sizes.heads,o=t.copied("after");this.facts.show("head",`${e-t.off.length} of ${e}`),this.facts.show("mean loss",this.lossText()),this.facts.show(
"KV cache",`${t.cacheBytes} bytes per word`),this.facts.show("words copied",Number.isNaN(o)?null:X(o,3))}lossText(){let{session:t}=this,[e,o]=[t.losses.get(""),
t.lossGrowth()];if(e===void 0)return"measuring…";if(o===null)return`${z(e)} → measuring…`;if(!t.changed)return z(e);let n=o>=0?"+":"−";return`${z(e)} → ${z(
e*(1+o))} (${n}${X(Math.abs(o))})`}onKey(t){t.key.toLowerCase()!=="z"||!(t.ctrlKey||t.metaKey)||t.shiftKey||U(t,"textarea, input[type=text]")||(t.preventDefault(),
this.act(()=>this.session.undo()))}resize(){this.maps.resize(),this.computation.draw()}};function Ao(s){let{layers:t,heads:e,width:o,headDim:n,words:r}=s.sizes,
a=[[je(s.parameters),"parameters","parameters"],[`${ut(t,"layer")} × ${ut(e,"head")}`,`d_model ${o}, d_k ${n}`,"head"],[String(r),"words","the language"]];O("c\
ard").replaceChildren(...a.map(([i,h,l])=>c("span",{},c("b",{},i),` ${h} `,E(l)))),O("foot").replaceChildren(c("p",{},`multihead ${s.version}. The model runs in\
 this page, which sends nothing. The URL saves words and switches. Ctrl+Z undoes a switch.`))}function Ts(s){document.documentElement.dataset.theme=s,Ue()}async function Eo(){
let s=window.matchMedia("(prefers-color-scheme: dark)");if(Ts(s.matches?"dark":"light"),typeof DecompressionStream>"u"){O("main").append(c("p",{class:"lead"},"T\
his browser is too old for this page. Use Chrome 111, Safari 16.4, Firefox 113 or a newer one."));return}let t=await Oe();_e(t.charts),Ao(t);let e=new Yt(t,new Ct(
t.sizes,Ms(await J(0),t.layout)));e.text=Mo;let o=e.card.agreement.match(/\d+/g)?.map(Number);o&&([e.layer,e.head]=o),location.hash.length>1&&e.restore(location.
hash);let n=new Ee(e),r=h=>{Ts(h),n.update()},a=()=>document.documentElement.dataset.theme==="dark"?"light":"dark";O("tools").append(ts(()=>n.writeAddress())??""),
O("tools").append(c("button",{type:"button",id:"theme",onclick:()=>r(a())},"Light / dark")),s.addEventListener("change",()=>r(s.matches?"dark":"light")),window.
addEventListener("hashchange",()=>{location.hash!==e.hash&&n.act(()=>e.restore(location.hash))}),window.addEventListener("keydown",h=>n.onKey(h));let i=0;window.
addEventListener("resize",()=>{clearTimeout(i),i=window.setTimeout(()=>n.resize(),80)}),n.update(),Object.defineProperty(window,"multihead",{value:Object.freeze(
{session:e,page:n})})}Eo();})();
