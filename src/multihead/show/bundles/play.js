"use strict";(()=>{function _(s){let t=document.getElementById(s);if(!t)throw new Error(`the page has no element #${s}`);return t}function l(s,t={},...e){let o=document.createElement(
s);for(let[n,a]of Object.entries(t))a==null||a===!1||(typeof a=="function"?o.addEventListener(n.slice(2),a):o.setAttribute(n,a===!0?"":String(a)));return Le(o,e),
o}function Le(s,t){for(let e of t)Array.isArray(e)?Le(s,e):e!=null&&s.append(e)}function B(s){_("live").textContent=s}function Ce(s,t){let e=l("a",{href:URL.createObjectURL(s),download:t});e.click(),setTimeout(()=>URL.revokeObjectURL(e.href),1e4)}function J(s,t){let e=t.getBoundingClientRect();
return[s.clientX-e.left,s.clientY-e.top]}function U(s,t){return s.target instanceof Element?s.target.closest(t):null}var qe=null,Ne=Uint8Array;async function Oe(s){let t=Ne.fromBase64?Ne.fromBase64(s):Uint8Array.from(atob(s),o=>o.charCodeAt(0)),e=new Response(t).body;return new Uint8Array(
await new Response(e.pipeThrough(new DecompressionStream("deflate-raw"))).arrayBuffer())}async function ze(){let s=_("data"),t=JSON.parse(new TextDecoder().decode(
await Oe(s.textContent??"")));return s.remove(),t}function X(s){return qe??=(_("lines").textContent??"").split(`
`),Oe(qe[s])}var nt=s=>new Float32Array(s.buffer,s.byteOffset,s.byteLength/4),Xt=s=>new Uint32Array(s.buffer,s.byteOffset,s.byteLength/4),Os=Float64Array.from({
length:32},(s,t)=>2**((t||1)-25));function Et(s){let t=s.length/2,e=new Float32Array(t);for(let o=0;o<t;o+=1){let n=s[o]<<8|s[t+o],a=n>>10&31,r=((a?1024:0)+(n&1023))*
Os[a];e[o]=n&32768?-r:r}return e}var j;function _e(s){j=s}var Re=s=>s==null||Number.isNaN(s);function N(s,t=j.format.digits){let{missing:e,plain:o}=j.format;if(Re(s))return e;let n=Math.abs(s);return Number.isInteger(s)&&
n<o[1]?String(s):n>=o[1]||n<o[0]?s.toExponential(1).replace("e+","e").replace(".0e","e"):String(Number(s.toPrecision(t)))}function H(s){let{missing:t,fraction_digits:e}=j.
format;return Re(s)?t:s.toFixed(e)}var Z=(s,t=2)=>`${N(100*s,t)} %`;function Ie(s){let t=Math.max(0,Math.min(3,Math.floor(Math.log10(Math.max(1,s))/3)));return`${Number(
(s/1e3**t).toPrecision(3))}${[""," k"," M"," G"][t]}`}function tt(s,t=24){let e=Array.from(s);return e.length<=t?s:`${e.slice(0,t-1).join("")}…`}var je=s=>s?`${s[0].
toUpperCase()}${s.slice(1)}${/[.!?]$/.test(s)?"":"."}`:"",pt=(s,t)=>`${s} ${t}${s===1?"":"s"}`;var Zt={head:"From every token, a head looks at other tokens and takes information from them. A layer has several heads, and each looks at different tokens. L3H\
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
 computed on this model."},Pe=s=>Object.assign(Zt,s);var K=l("div",{id:"definition",role:"note",hidden:!0}),G=null;function ft(){G?.setAttribute("aria-expanded","false"),G=null,K.hidden=!0}function zs(s,t,e){ft(),
G=s,s.setAttribute("aria-expanded","true"),K.replaceChildren(l("b",{},t),l("p",{},e)),document.body.append(K),K.hidden=!1;let o=s.getBoundingClientRect(),{width:n,
height:a}=K.getBoundingClientRect(),r=Math.max(8,Math.min(o.left-12,document.documentElement.clientWidth-n-8)),i=o.bottom+6+a<=window.innerHeight||o.top<a+6;K.style.
left=`${r+window.scrollX}px`,K.style.top=`${(i?o.bottom+6:o.top-a-6)+window.scrollY}px`,B(`${t}: ${e}`)}document.addEventListener("pointerdown",s=>{let t=s.target;
G&&!K.contains(t)&&!G.contains(t)&&ft()});window.addEventListener("hashchange",ft);document.addEventListener("keydown",s=>{s.key!=="Escape"||!G||(s.stopPropagation(),
G.focus(),ft())},{capture:!0});function T(s,t=Zt[s]){let e=l("button",{type:"button",class:"help","aria-label":`What is ${s}?`,"aria-expanded":"false",onclick:o=>{
o.preventDefault(),o.stopPropagation(),G===e?ft():zs(e,s,t)}});return e.textContent="?",e}var _s=s=>s.split(",")[0];function St(s){let t=_s(s).split(" + ");return j.shares.filter(({name:e})=>t.includes(e))}var et=256;function ee(s){let{kinds:t,no_value:e}=j;return Object.hasOwn(t,s)?t[s]:St(s)[0]?.colour??e}var Rs=s=>[1,3,5].map(t=>parseInt(s.slice(t,t+2),16));function Is(s){let t=s.map(Rs),e=new Uint8Array(3*et);for(let o=0;o<et;o+=1){let n=o/(et-1)*(t.length-1),a=Math.
min(t.length-2,Math.floor(n));for(let r=0;r<3;r+=1)e[3*o+r]=Math.round(t[a][r]+(n-a)*(t[a+1][r]-t[a][r]))}return e}var We=new Map;function He(s){let t=We.get(s);
return t||(t=Is(j.ramps[s]),We.set(s,t)),t}var se=()=>document.documentElement.dataset.theme==="dark"?"weight-dark":"weight",Fe=()=>document.documentElement.dataset.
theme==="dark"?"signed-dark":"signed";function oe(s,t){let e=He(s),o=3*Math.max(0,Math.min(et-1,Math.round(t*(et-1))));return`rgb(${e[o]} ${e[o+1]} ${e[o+2]})`}
var te=new Map,Lt=null;function F(s){let t=te.get(s);return t===void 0&&(t=getComputedStyle(document.documentElement).getPropertyValue(s).trim(),te.set(s,t)),t}
function De(){if(!Lt){let s=He(se()),t=new Uint8Array(4*et).fill(255);for(let e=0;e<et;e+=1)t.set(s.subarray(3*e,3*e+3),4*e);Lt=new Uint32Array(t.buffer)}return Lt}
function Be(){Lt=null,te.clear()}var js=16,Ct="system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif",wt=()=>window.devicePixelRatio||1;function at(s){let t=s.getContext("2d");if(!t)throw new Error(
"this browser draws no canvas");return t}function rt(s,t,e){let o=wt(),[n,a]=[Math.max(1,Math.round(t*o)),Math.max(1,Math.round(e*o))],r=at(s);return s.width===
n&&s.height===a&&s.style.width&&"reset"in r?r.reset():(s.width=n,s.height=a,s.style.width=`${t}px`,s.style.height=`${e}px`),r.setTransform(o,0,0,o,0,0),r}function ne(s,t,e,o){s.save(),s.translate(e,o),s.rotate(-Math.PI/2),s.fillText(t,0,0),s.restore()}var qt=()=>parseFloat(getComputedStyle(document.documentElement).
fontSize)/js;function it(s,t,e,o){let[n,a]=[s.length/o,t.length/o],r=new Float32Array(n*a);for(let i=0,h=0;i<n;i+=1){let c=i*o,u=0;for(;u+3<a;u+=4,h+=4){let d=0,p=0,m=0,w=0;
for(let f=0,y=u*o;f<o;f+=1,y+=1){let b=s[c+f];d+=b*t[y],p+=b*t[y+o],m+=b*t[y+2*o],w+=b*t[y+3*o]}r[h]=d,r[h+1]=p,r[h+2]=m,r[h+3]=w}for(;u<a;u+=1,h+=1){let d=0;for(let p=0,
m=u*o;p<o;p+=1,m+=1)d+=s[c+p]*t[m];r[h]=d}if(e)for(let d=0;d<a;d+=1)r[i*a+d]+=e[d]}return r}function gt(s,t,e){let[o,n]=[0,0];for(let a=t;a<t+e;a+=1)o+=s[a]/e;for(let a=t;a<
t+e;a+=1)n+=(s[a]-o)**2/e;return{mean:o,scale:1/Math.sqrt(n+1e-5)}}function Nt(s,t,e){let o=t.length,n=new Float32Array(s.length);for(let a=0;a<s.length;a+=o){let{
mean:r,scale:i}=gt(s,a,o);for(let h=0;h<o;h+=1)n[a+h]=(s[a+h]-r)*i*t[h]+e[h]}return n}function Ps(s){if(Math.abs(s)>5.9)return Math.sign(s);let[e,o]=[s,s];for(let n=1;Math.
abs(e)>1e-17*Math.abs(o);n+=1)e*=2*s*s/(2*n+1),o+=e;return 2/Math.sqrt(Math.PI)*Math.exp(-s*s)*o}var Ue=s=>.5*(1+Ps(s/Math.SQRT2)),Ke=s=>s*Ue(s),Ge=s=>Ue(s)+s*Math.
exp(-.5*s*s)/Math.sqrt(2*Math.PI),ae=(s,t)=>s.map((e,o)=>e+t[o]);function re(s,t,e){let[o,n]=[-1/0,0];for(let a=t;a<t+e;a+=1)s[a]>o&&(o=s[a]);for(let a=t;a<t+e;a+=
1)n+=s[a]=Math.exp(s[a]-o);for(let a=t;a<t+e;a+=1)s[a]/=n}function ht(s,{heads:t,headDim:e,rotaryDim:o,rotaryBase:n},a=1){let r=s.slice(),[i,h]=[t*e,o/2];for(let c=0,
u=0;c<s.length;c+=i,u+=1)for(let d=0;d<h;d+=1){let p=a*u*n**(-d/h),[m,w]=[Math.cos(p),Math.sin(p)];for(let f=c+d,y=c+i;f<y;f+=e)r[f]=s[f]*m-s[f+h]*w,r[f+h]=s[f+
h]*m+s[f]*w}return r}var ie=3,x=s=>N(s).replace(/^-/,"−");function yt(s,t){let e=s.filter(([n,a])=>n*a!==0).sort((n,a)=>Math.abs(a[0]*a[1])-Math.abs(n[0]*n[1])),o=e.slice(0,ie).map(
([n,a])=>`${x(n)} · ${x(a)}`);return e.length>ie&&o.push(`… (${e.length-ie} smaller terms)`),t!==void 0&&o.push(x(t)),o.join(" + ")||"0"}var Ot=(s,t,e,o,n=0)=>Array.
from({length:o},(a,r)=>[s[t*o+r],e[n+r]]);var bt=["uniform","previous","first"],O=({layers:s,heads:t})=>Array.from({length:s},()=>({heads:Array.from({length:t},()=>({scale:1,pattern:null})),merged:!1,kvHeads:t}));
function kt({heads:s,merged:t}){let e=s.map((o,n)=>n);return t?[e]:e.map(o=>[o])}var Ws=(s,t)=>s==="uniform"?null:s==="first"?0:Math.max(0,t-1),zt=class{constructor(t,e){
this.sizes=t,this.weights=e}of(t,e){return this.weights[`layers.${t}.${e}`]}run(t,e=O(this.sizes)){let{width:o,words:n,layers:a}=this.sizes,r=this.weights["word\
s.weight"],i=new Float32Array(t.length*o);t.forEach((p,m)=>i.set(r.subarray(p*o,(p+1)*o),m*o));let h=[];for(let p=0;p<a;p+=1){let m=p?h[p-1].output:i;h.push(this.
runLayer(p,m,e[p]))}let c=Nt(h[a-1].output,this.weights["norm.weight"],this.weights["norm.bias"]),u=it(c,r,null,o),d=u.slice();for(let p=0;p<t.length;p+=1)re(d,
p*n,n);return{ids:t,embedding:i,layers:h,normed:c,logits:u,probabilities:d}}runLayer(t,e,o){let{width:n,hidden:a,heads:r,headDim:i}=this.sizes,h=g=>this.of(t,g),
c=Nt(e,h("attention_norm.weight"),h("attention_norm.bias")),u=g=>it(c,h(`attention.${g}_proj.weight`),h(`attention.${g}_proj.bias`),n),d=ht(u("q"),this.sizes),p=this.
shared(ht(u("k"),this.sizes),o.kvHeads),m=this.shared(u("v"),o.kvHeads),{scores:w,weights:f}=this.attend(d,p,o),y=this.mix(f,m),b=y.map((g,S)=>g*o.heads[Math.floor(
S%(r*i)/i)].scale),v=it(b,h("attention.o_proj.weight"),h("attention.o_proj.bias"),r*i),$=ae(e,v),M=Nt($,h("hidden_norm.weight"),h("hidden_norm.bias")),E=it(M,h(
"up.weight"),h("up.bias"),n),L=E.map(Ke),k=it(L,h("down.weight"),h("down.bias"),a),q=ae($,k);return{input:e,normed:c,q:d,k:p,v:m,scores:w,weights:f,outputs:y,concatenated:b,
attention:v,middle:$,middleNormed:M,up:E,active:L,down:k,output:q}}shared(t,e){let{heads:o,headDim:n}=this.sizes,a=o/e;if(a===1)return t;let r=new Float32Array(
t.length);for(let i=0;i<t.length;i+=a*n)for(let h=0;h<n;h+=1){let c=0;for(let u=i+h;u<i+a*n;u+=n)c+=t[u];for(let u=i+h;u<i+a*n;u+=n)r[u]=c/a}return r}attend(t,e,o){
let{heads:n,headDim:a}=this.sizes,r=n*a,i=t.length/r,h=[],c=[];for(let u of kt(o)){let d=1/Math.sqrt(u.length*a),[p,m]=[u[0]*a,u.length*a],w=new Float32Array(i*
i);for(let b=0;b<i;b+=1)for(let v=0;v<=b;v+=1){let $=0,M=b*r+p;for(let E=M,L=v*r+p;E<M+m;E+=1,L+=1)$+=t[E]*e[L];w[b*i+v]=$*d}let f=o.merged?null:o.heads[u[0]].pattern,
y=f?Hs(f,i):w.slice();if(!f)for(let b=0;b<i;b+=1)re(y,b*i,b+1);for(let b of u)h[b]=w,c[b]=y}return{scores:h,weights:c}}mix(t,e){let{heads:o,headDim:n}=this.sizes,
a=o*n,r=e.length/a,i=new Float32Array(e.length),h=new Float64Array(n);for(let c=0;c<o;c+=1)for(let u=0;u<r;u+=1){h.fill(0);for(let d=0;d<=u;d+=1){let p=t[c][u*r+
d];if(p!==0)for(let m=0,w=d*a+c*n;m<n;m+=1,w+=1)h[m]+=p*e[w]}i.set(h,u*a+c*n)}return i}};function Hs(s,t){let e=new Float32Array(t*t);for(let o=0;o<t;o+=1){let n=Ws(
s,o);n===null?e.fill(1/(o+1),o*t,o*t+o+1):e[o*t+n]=1}return e}function _t({ids:s,probabilities:t}){let e=t.length/s.length,o=0;for(let n=0;n+1<s.length;n+=1)o-=
Math.log(t[n*e+s[n+1]]);return s.length>1?o/(s.length-1):0}function Ve({ids:s,probabilities:t}){let e=t.length/s.length;return s.map((o,n)=>{let a=0;for(let r=1;r<
e;r+=1)t[n*e+r]>t[n*e+a]&&(a=r);return a})}var vt=(s,t,e)=>s.subarray(t*e,(t+1)*e);function Qe(s,t,e){let{mean:o,scale:n}=gt(s,0,s.length);return a=>`(x − mean) / deviation · weight + bias = (${x(s[a])}\
 − ${x(o)}) / ${x(1/n)} · ${x(t[a])} + ${x(e[a])}`}function Ye(s){let{model:t,layer:e,token:o,settings:n}=s,{width:a,heads:r,headDim:i,hidden:h}=s.sizes,c=s.
after.layers[e],u=g=>t.of(e,g),d=(g,S=a)=>vt(g,o,S),[p,m,w]=[d(c.input),d(c.middle),d(c.active,h)],[f,y]=[d(c.attention),d(c.concatenated,r*i)],b=`${a} = d_mode\
l`,v=d(s.after.embedding),$=e?"embedding + what earlier layers added = ":"",E=[{name:e?`vector that enters layer ${e}`:`embedding of “${s.word(o)}”`,symbol:"\
x",shape:b,values:p,formula:g=>e?`${$}${x(v[g])} + ${x(p[g]-v[g])}`:`row ${s.before.ids[o]} of the embedding table, column ${g}`},{name:"the same, normalized",symbol:"\
x̂",shape:b,values:d(c.normed),formula:Qe(p,u("attention_norm.weight"),u("attention_norm.bias"))}],L=g=>Array.from({length:r},(S,R)=>{let mt=0;for(let Y=R*i;Y<
(R+1)*i;Y+=1)mt+=u("attention.o_proj.weight")[g*r*i+Y]*y[Y];return`${x(mt)} from L${e}H${R}`}).join(" + "),k=[{name:"outputs of all heads, side by side",symbol:"\
concatenation",shape:`${r*i} = ${r} heads × d_k`,values:y,breaks:Array.from({length:r-1},(g,S)=>(S+1)*i),formula:g=>{let S=Math.floor(g/i),R=d(c.outputs,r*i)[g];
return`number ${g%i} of L${e}H${S}'s output, times its strength: ${x(R)} · ${x(n[e].heads[S].scale)}`}},{name:"mixed by W_O",symbol:"attention",shape:b,values:f,
formula:g=>`row ${g} of W_O times the concatenation + bias = ${L(g)} + ${x(u("attention.o_proj.bias")[g])}`},{name:"added to the vector that entered",symbol:"re\
sidual",shape:b,values:m,formula:g=>`x + attention = ${x(p[g])} + ${x(f[g])}`}],q=[{name:"hidden layer",symbol:"hidden",shape:String(h),values:w,formula:g=>`GEL\
U(row ${g} of W_up times the normalized residual + bias) = GELU(${x(d(c.up,h)[g])})`},{name:`vector that leaves layer ${e}`,symbol:"out",shape:b,values:d(c.output),
formula:g=>`residual + W_down · hidden + bias = ${x(m[g])} + ${x(d(c.down)[g])}`}];return{before:E,after:k,alone:q}}function Je(s,t){let{model:e,layer:o,token:n,
sizes:a}=s,{width:r,heads:i,headDim:h,rotaryDim:c}=a,u=s.settings[o],d=s.after.layers[o],p=s.tokens.length,m=A=>e.of(o,`attention.${A}`),w=(A,P=n)=>{let I=P*i*h+
t*h;return A.subarray(I,I+h)},f=vt(d.normed,n,r),y=`${h} = d_k`,b=i/u.kvHeads>1?`, the mean of ${i/u.kvHeads} heads`:"",v=(A,P)=>I=>{let At=t*h+I,Cs=m(`${A}_pro\
j.bias`)[At],qs=yt(Ot(m(`${A}_proj.weight`),At,f,r),Cs),Ns=P&&I<c?`, then rotated by the position ${n} together with number ${(I+c/2)%c}`:"";return`W_${A.toUpperCase()}\
[${I}] · x̂ + bias = ${qs}${Ns}${A==="q"?"":b}`},$=A=>A.subarray(n*p,n*p+n+1),[M,E]=[$(d.scores[t]),$(d.weights[t])],L=kt(u).find(A=>A.includes(t))??[t],k=L.length*
h,q=(A,P)=>{let I=P*i*h+L[0]*h;return A.subarray(I,I+k)},g=A=>`“${s.word(A)}”`,S=M.reduce((A,P)=>Math.max(A,P),-1/0),R=M.reduce((A,P)=>A+Math.exp(P-S),0),mt=u.
merged?null:u.heads[t].pattern,{scale:Y}=u.heads[t],Ls=Y===1?"":`; times its strength ${x(Y)} in the concatenation`;return[{name:"query q",symbol:"q",shape:y,values:w(
d.q),formula:v("q",!0)},{name:"key k",symbol:"k",shape:y,values:w(d.k),formula:v("k",!0)},{name:"value v",symbol:"v",shape:y,values:w(d.v),formula:v("v",!1)},{name:"\
scores q · k / √d",symbol:"score",shape:`${n+1} words so far`,values:M,label:g,formula:A=>`q · k / √${k} = (${yt(Ot(q(d.k,A),0,q(d.q,n),k))}) / ${x(Math.sqrt(
k))}`},{name:"weights: softmax of the scores",symbol:"weight",shape:`${n+1}, sum 1`,values:E,label:g,positive:!0,formula:A=>mt?`set by hand: ${mt}`:`e^(score − \
largest) / sum = e^(${x(M[A])} − ${x(S)}) / ${x(R)} = ${x(Math.exp(M[A]-S))} / ${x(R)}`},{name:"output: weighted sum of the values",symbol:"output",shape:y,values:w(
d.outputs),formula:A=>{let P=Array.from(E,(I,At)=>[I,w(d.v,At)[A]]);return`Σ weight · v[${A}] = ${yt(P)}${Ls}`}}]}function Xe(s){let{model:t,token:e,after:o}=s,
{width:n,words:a,layers:r}=s.sizes,i=vt(o.layers[r-1].output,e,n),h=vt(o.normed,e,n),[c,u]=[o.logits,o.probabilities].map(f=>vt(f,e,a)),d=c.reduce((f,y)=>Math.max(
f,y),-1/0),p=c.reduce((f,y)=>f+Math.exp(y-d),0),m=f=>`“${s.data.words[f]}”`,w=t.weights["words.weight"];return[{name:"last vector, normalized",symbol:"y",shape:`${n}\
 = d_model`,values:h,formula:Qe(i,t.weights["norm.weight"],t.weights["norm.bias"])},{name:"score of every word (its logit)",symbol:"score",shape:`${a} words`,values:c,
label:m,formula:f=>`embedding of ${m(f)} · y = ${yt(Ot(w,f,h,n))}`},{name:"probability that the word comes next",symbol:"probability",shape:`${a}, sum 1`,values:u,
label:m,positive:!0,formula:f=>`e^(score − largest) / sum = ${x(Math.exp(c[f]-d))} / ${x(p)}`}]}var Ze=20,Fs=28,Ds=26,Rt=class{constructor(t){this.inspect=t,this.vector=null,this.cursor=0,this.width=0,this.height=Ze,this.type=1,this.caption=l("span",{}),this.
shape=l("small",{class:"shape"}),this.canvas=l("canvas",{class:"cells",tabindex:"0",role:"slider","aria-valuemin":0}),this.room=l("div",{class:"striproom"},this.
canvas),this.box=l("div",{class:"vector"},l("div",{class:"vectortop"},this.caption,this.shape),this.room),this.canvas.addEventListener("pointermove",e=>this.point(
e)),this.canvas.addEventListener("pointerdown",e=>this.point(e)),this.canvas.addEventListener("focus",()=>this.move(this.cursor)),this.canvas.addEventListener("\
keydown",e=>this.onKey(e))}show(t){this.vector=t,this.cursor=Math.min(this.cursor,t.values.length-1),this.caption.textContent=t.name,this.shape.textContent=t.shape,
this.canvas.setAttribute("aria-label",`${t.name}, ${t.shape}`),this.canvas.setAttribute("aria-valuemax",String(t.values.length-1)),this.announce()}announce(){let{
vector:t,cursor:e}=this;t&&(this.canvas.setAttribute("aria-valuenow",String(e)),this.canvas.setAttribute("aria-valuetext",`${he(t,e)}: ${N(t.values[e])}`))}draw(t,e=this.
type){let{vector:o}=this;if(!o||t<1)return;this.type=e;let n=o.values.length;this.width=Math.min(t,e*Ds*n),this.height=e*(matchMedia("(pointer: coarse)").matches?
Fs:Ze);let{height:a}=this,r=rt(this.canvas,this.width,a),i=this.width/n,h=Math.max(1e-9,...Array.from(o.values,Math.abs));for(let c=0;c<n;c+=1){let u=o.values[c];
r.fillStyle=o.positive?oe(se(),Math.sqrt(Math.max(0,u))):oe(Fe(),.5+u/h/2),r.fillRect(c*i,0,i-(i>5?1:0),a)}r.fillStyle=F("--ink");for(let c of o.breaks??[])r.fillRect(
c*i-1,0,1.5,a);(document.activeElement===this.canvas||this.marked)&&this.outline()}marked=!1;outline(){let t=at(this.canvas),e=this.width/(this.vector?.values.length??
1);t.strokeStyle=F("--mark"),t.lineWidth=2,t.strokeRect(this.cursor*e+1,1,Math.max(2,e-2),this.height-2)}point(t){if(!this.vector)return;let[e]=J(t,this.canvas);
this.move(Math.floor(e/this.width*this.vector.values.length))}onKey(t){let e=this.vector?.values.length??1,o={ArrowLeft:this.cursor-1,ArrowRight:this.cursor+1,Home:0,
End:e-1}[t.key];o!==void 0&&(t.preventDefault(),this.move(o))}move(t){let{vector:e}=this;e&&(this.cursor=Math.max(0,Math.min(e.values.length-1,t)),this.announce(),
this.inspect(e,this.cursor,this))}},he=({symbol:s,label:t},e)=>t?`${s} of ${t(e)}`:`${s}[${e}]`;var It=class{constructor(t,e){this.session=t,this.title=l("h2",{}),this.layers=l("div",{class:"layertabs",role:"group","aria-label":"layer"});for(let o=0;o<t.sizes.
layers;o+=1)this.layers.append(l("button",{type:"button",onclick:()=>e(o)},`Layer ${o}`));this.body=l("div",{class:"steps-of"}),this.value=l("b",{}),this.formula=
l("span",{}),this.readout=l("div",{class:"readout",id:"readout","aria-live":"polite"},this.value,this.formula),this.box=l("section",{class:"computation"},l("div",
{class:"inputtop"},this.title,T("the computation"),this.layers),this.body,this.readout),this.strips=[],this.built="",this.marked=null,this.clearReadout()}clearReadout(){
this.readout.classList.remove("on"),this.value.textContent="",this.formula.textContent="Point at any cell, tap it, or reach it with Tab and the arrow keys: its \
value and its formula are shown here."}inspect(t,e,o){this.readout.classList.add("on"),this.value.textContent=`${he(t,e)} = ${x(t.values[e])}`,this.formula.textContent=
`= ${t.formula(e)}`;let n=this.marked;this.marked=o,n&&n!==o&&(n.marked=!1,n.draw(n.width)),o.marked=!0,o.draw(o.width)}update(){let{session:t}=this,{layer:e,token:o,
sizes:n}=t,a=t.tokens.length;this.title.textContent=`The computation for “${t.word(o)}”`,[...this.layers.children].forEach((f,y)=>f.setAttribute("aria-press\
ed",String(y===e)));let{width:r,heads:i,headDim:h}=n,c=Ye(t),u=Array.from({length:i},(f,y)=>Je(t,y)),d=Xe(t),p=[...c.before,...u.flat(),...c.after,...c.alone,...d],
m=t.settings[e].merged,w=`${e} ${m} ${p.length}`;this.built!==w&&(this.build(c.before.length,u.map(f=>f.length),c.after.length,c.alone.length,d.length,m),this.built=
w),p.forEach((f,y)=>this.strips[y].show(f)),this.sizesNote.textContent=`${a} words × d_model ${r} → ${i} heads × d_k ${h} → concatenation ${a} × ${i*h} →\
 W_O (${i*h} × ${r}) → ${a} × ${r}`,this.marked?.vector&&this.marked.move(this.marked.cursor),this.draw()}sizesNote=l("p",{class:"dim"});build(t,e,o,n,a,r){
let{layer:i,sizes:h}=this.session;this.strips=[],this.marked=null,this.clearReadout();let c=$=>Array.from({length:$},()=>{let M=new Rt((...E)=>this.inspect(...E));
return this.strips.push(M),M.box}),u=l("li",{},l("h3",{},"The vector of the word ",T("embedding")),...c(t)),d=e.map(($,M)=>l("div",{class:"headcard"},l("h4",{},
`L${i}H${M}`),...c($))),m=l("li",{},l("h3",{},r?"One head: the same scores for all four parts ":"Each head compares, weighs and mixes ",T("query, key, value")),
l("div",{class:"headcards"},...d)),w=l("li",{},l("h3",{},"All heads together ",T("W_O")),...c(o)),f=l("li",{},l("h3",{},"This word alone ",T("hidden layer")),...c(
n)),y=h.layers-1-i,b=y?`${y} more layer${y>1?"s do":" does"} the same with this vector. Then: the next word `:"The next word ",v=l("li",{},l("h3",{},b,T("next w\
ord")),...c(a));this.body.replaceChildren(this.sizesNote,l("ol",{class:"computing"},u,m,w,f,v))}draw(){let t=this.strips.map(({room:o})=>o.clientWidth),e=qt();this.
strips.forEach((o,n)=>o.draw(t[n],e))}get inspected(){let t=this.marked;return t?.vector?N(t.vector.values[t.cursor]):""}};var Bs=2e3;function ts(s){if(location.protocol==="about:")return null;let t=l("button",{type:"button",id:"copylink"},"Copy link"),e=l("input",{type:"text",readonly:!0,
hidden:!0,"aria-label":"link to this state"});e.addEventListener("focus",()=>e.select()),e.addEventListener("blur",()=>e.hidden=!0);let o=0;return t.addEventListener(
"click",async()=>{if(s(),!await Us(location.href)){e.value=location.href,e.hidden=!1,e.focus(),B("Copy the link from the field.");return}t.textContent="Copied",
B("Link copied."),clearTimeout(o),o=window.setTimeout(()=>t.textContent="Copy link",Bs)}),l("span",{class:"copylink"},e,t)}async function Us(s){try{return await navigator.
clipboard.writeText(s),!0}catch{return!1}}Pe({"the language":"The model knows a small invented language of 214 words. “<now> <town> the keys that the man sees are new .” is a sentence of it. <now> or <p\
ast> states the tense; <sea>, <farm> or <town> the place. A list of words that repeats is also a text that the model can continue.","next word":"The model gives\
 every word of its vocabulary a probability to come next. All probabilities add up to 1; the bars show the largest. The model computes a score for each word, it\
s logit, and softmax turns scores into probabilities.","pattern by hand":"Replaces the weights of the head by fixed ones: from every word it looks at all words \
so far equally, only at the word before, or only at the first word. The information that it takes from these words is still computed as trained.","one head":"Me\
rges the heads of the layer into one that uses the same matrices W_Q, W_K, W_V and W_O. Its query is the queries of all heads side by side, and its key their ke\
ys. Each pair of words has one score: the sum of the heads' products, divided by the root of the longer length. All parts of the vector get the same weights. Pa\
tterns set by hand do not apply.","keys/values":"How many sets of keys and values the heads of this layer have. With fewer sets than heads, heads that are next \
to each other share the mean of theirs: grouped-query attention. With one set it is multi-query attention.","mean loss":"How badly the model predicts the sample\
 texts: the mean of −log(probability of the word that really came next), in nats. 0 means that every word was certain; guessing at random among 214 words has a \
loss of 5.4. Lower is better.","KV cache":"The memory for one word while the model writes text: its key and value, for every set of every layer, two bytes per n\
umber. It is smaller when heads share keys and values.","words copied":"In a text that repeats itself: how many of the words after the first round the model pre\
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
matrix makes a vector of length d_model. This is added, too."});function es(s,t,e,o){let n=new Int32Array(o+1);for(let a=0;a<=o;a+=1)n[a]=Math.min(e,Math.floor(s+a/o*t+1e-9));return n}function ss({coded:s,keys:t,queries:e},o,n,a){
let r=De(),i=new ImageData(n,a),h=new Uint32Array(i.data.buffer),c=es(o.x,o.w,t,n),u=es(o.y,o.h,e,a),d=new Uint8Array(n),p=-1;for(let m=0;m<a;m+=1){let[w,f]=[u[m],
Math.max(u[m]+1,u[m+1])],y=w===p&&f===w+1,b=m*n;if(y){h.copyWithin(b,b-n,b);continue}d.fill(0);for(let v=w;v<f&&v<e;v+=1)for(let $=0,M=v*t;$<n;$+=1){let E=Math.
min(t,Math.max(c[$]+1,c[$+1])),L=d[$];for(let k=c[$];k<E;k+=1)s[M+k]>L&&(L=s[M+k]);d[$]=L}p=f===w+1?w:-1;for(let v=0;v<n;v+=1)h[b+v]=r[d[v]]}return i}function os(s,t,e,o=()=>!0){let n=[];for(let a=0;a<s.length;a+=1)s[a]>=e&&o(a)&&n.push(a);return n.sort((a,r)=>s[r]-s[a]).slice(0,t)}function V(s,...t){let e=[...s.querySelectorAll("button")].findIndex(o=>o===document.activeElement);s.replaceChildren(...t),e>=0&&s.querySelectorAll("button")[e]?.
focus()}var Ks=/<[\p{L}\p{N}_]+>|[\p{L}\p{N}_]+|[^\p{L}\p{N}_\s]/gu,[Gs,ns,as]=["<pad>","<s>","<unk>"],le=s=>s!==Gs&&s!==ns&&s!==as,Vs=s=>s.slice(0,1).toUpperCase()+s.slice(
1).toLowerCase(),jt=class{constructor(t){this.words=t,this.ids=new Map(t.map((e,o)=>[e,o])),this.begin=this.ids.get(ns)??0,this.unknown=this.ids.get(as)??0}idOf(t){
return this.ids.get(t)??this.ids.get(t.toLowerCase())??this.ids.get(Vs(t))}read(t){let o=(t.match(Ks)??[]).map(n=>{let a=this.idOf(n);return{id:a??this.unknown,
typed:n,known:a!==void 0}});return[{id:this.begin,typed:"",known:!0},...o]}completions(t,e){let o=t.toLowerCase(),n=this.words.filter(i=>i.toLowerCase().startsWith(
o)&&i.toLowerCase()!==o),[a,r]=[!0,!1].map(i=>n.filter(h=>h.startsWith(t)===i));return[...a,...r].filter(le).slice(0,e)}similar(t,e){let o=i=>{let h=`^${i.toLowerCase()}\
$`;return new Set(Array.from({length:h.length-1},(c,u)=>h.slice(u,u+2)))},n=o(t.slice(0,40));return this.words.map(i=>{let h=o(i);return{other:i,score:2*[...h].
filter(c=>n.has(c)).length/(h.size+n.size)}}).filter(({score:i})=>i>.3).sort((i,h)=>h.score-i.score).slice(0,e).map(({other:i})=>i)}};var rs=8,Qs=4,Pt=class{constructor(t,e){this.session=t,this.changed=e,this.field=l("textarea",{id:"text",rows:2,spellcheck:"false",autocapitalize:"off",autocomplete:"\
off","aria-label":"text that the model reads",oninput:()=>this.typed()}),this.suggestions=l("div",{class:"suggestions",role:"group","aria-label":"words to conti\
nue with"}),this.chips=l("div",{class:"chips",role:"group","aria-label":"words; choose the one to look at"}),this.notes=l("div",{class:"notes",role:"status"}),this.
looks=l("span",{}),this.chips.addEventListener("click",a=>{let r=U(a,".wordchip");r&&this.choose(Number(r.dataset.i))}),this.chips.addEventListener("keydown",a=>this.
onKey(a)),this.suggestions.addEventListener("click",a=>{let r=U(a,"button[data-word]");r&&this.complete(r.dataset.word??"")});let o=l("select",{id:"samples","ar\
ia-label":"sample texts"},l("option",{value:""},"samples…"));t.data.samples.forEach((a,r)=>o.append(l("option",{value:r},tt(a,60)))),o.addEventListener("chang\
e",()=>{o.value&&this.setText(t.data.samples[Number(o.value)]),o.value=""});let n=l("button",{type:"button",onclick:()=>this.setText("")},"Clear");this.box=l("s\
ection",{class:"input"},l("div",{class:"inputtop"},l("h2",{},"Words"),T("the language"),o,n),this.field,this.suggestions,this.notes,this.chips,l("p",{class:"dim\
 caption"},this.looks," ",T("weight")),l("p",{class:"dim caption"},"Below each word: the likeliest next word. ",T("next word"))),this.shown=[]}typed(){this.session.
text=this.field.value,this.session.chosen=null,this.changed()}setText(t){this.field.value=t,this.typed(),this.field.focus()}choose(t){this.session.chosen=t,this.
changed()}onKey(t){let e={ArrowLeft:-1,ArrowRight:1}[t.key],o=U(t,".wordchip");if(!e||!o)return;t.preventDefault();let n=Number(o.dataset.i)+e;n<0||n>=this.session.
tokens.length||(this.choose(n),this.shown[n]?.focus())}complete(t){let e=this.partial(),o=this.field.value,n=e?o.slice(0,o.length-e.length):o&&!/\s$/.test(o)?`${o}\
 `:o;this.setText(`${n}${t} `)}partial(){return/[^\s]+$/.exec(this.field.value)?.[0]??""}update(){let{session:t}=this;this.field.value!==t.text&&(this.field.value=
t.text),this.drawSuggestions(),this.drawNotes(),this.drawChips(),this.looks.textContent=this.looksText()}looksText(){let{session:t}=this,e=t.row("after"),o=os(e,
Qs,.005).map(n=>`“${t.word(n)}” ${H(e[n])}`);return`Blue: from “${t.word(t.token)}”, ${t.headName} looks at ${o.join(", ")}.`}drawSuggestions(){let{session:t}=this,
e=this.partial(),o=e?t.tokenizer.completions(e,rs):[],n=o.length?o:this.likely(),a=o.length?"complete: ":"next: ",r=n.map(i=>l("button",{type:"button",class:"su\
ggestion","data-word":i},i));V(this.suggestions,l("span",{class:"dim"},a),...r)}likely(){let{words:t}=this.session.data,e=(this.session.tokens.length-1)*t.length,
o=this.session.after.probabilities.subarray(e,e+t.length);return t.map((a,r)=>r).sort((a,r)=>o[r]-o[a]).map(a=>t[a]).filter(le).slice(0,rs)}drawNotes(){let{session:t}=this,
e=[...new Set(t.tokens.filter(({known:n})=>!n).map(({typed:n})=>n))],o=e.slice(0,4).map(n=>{let a=t.tokenizer.similar(n,3),r=a.length?` Similar: ${a.join(", ")}\
.`:"",i=t.data.words.length;return l("p",{class:"note"},`“${tt(n,30)}” is not one of the ${i} words of this model, which reads it as <unk>.${r}`)});if(e.length>
4&&o.push(l("p",{class:"note"},`${e.length-4} more words are unknown.`)),t.dropped){let n=`The model was trained on ${t.data.context} words at a time. The last ${pt(
t.dropped,"word")} are not read.`;o.push(l("p",{class:"note"},n))}this.notes.replaceChildren(...o)}drawChips(){let{session:t}=this,{words:e}=t.data,[o,n]=[t.guesses(
"before"),t.guesses("after")],a=t.row("after");for(;this.shown.length>t.tokens.length;)this.shown.pop()?.remove();t.tokens.forEach(({typed:r,known:i,id:h},c)=>{
let u=this.shown[c];u||(u=l("button",{type:"button",class:"wordchip","data-i":c},l("span",{}),l("small",{})),this.shown.push(u),this.chips.append(u));let d=o[c]!==
n[c],[p,m]=[...u.children];p.textContent=i?e[h]:tt(r,24),m.textContent=e[n[c]],m.classList.toggle("switched",d),u.classList.toggle("unknown",!i),u.classList.toggle(
"from",c===t.token),u.tabIndex=c===t.token?0:-1,u.setAttribute("aria-pressed",String(c===t.token));let w=c<a.length?Math.round(72*a[c]**j.weight_exponent):0;u.style.
backgroundColor=w>2?`color-mix(in srgb, var(--shade) ${w}%, var(--soft))`:"",u.title=d?`next word before: ${e[o[c]]}, now: ${e[n[c]]}`:""})}};function is(s,t,e){let{words:o,width:n,layers:a}=s.sizes,r=t.ids.length,i=t.probabilities.slice();for(let d=0;d+1<r;d+=1)i[d*o+t.ids[d+1]]-=1;i.fill(0,(r-1)*o);
for(let d=0;d<i.length;d+=1)i[d]/=Math.max(1,r-1);let h=t.layers[a-1].output,c=ce(h,s.weights["norm.weight"],st(i,s.weights["words.weight"],n)),u=[];for(let d=a-
1;d>=0;d-=1){let{gradient:p,dInput:m}=Ys(s,d,t.layers[d],e[d],c);u.unshift(p),c=m}return u}function st(s,t,e){let o=t.length/e,n=new Float32Array(s.length/o*e);
for(let a=0,r=0;r<s.length;a+=1)for(let i=0;i<o;i+=1,r+=1){let h=s[r];if(h!==0)for(let c=0;c<e;c+=1)n[a*e+c]+=h*t[i*e+c]}return n}function Wt(s,t,e){let o=t.length/
e,n=s.length/o,a=new Float32Array(n*e);for(let r=0;r<o;r+=1)for(let i=0;i<n;i+=1){let h=s[r*n+i];if(h!==0)for(let c=0;c<e;c+=1)a[i*e+c]+=h*t[r*e+c]}return a}function ce(s,t,e){
let o=t.length,n=new Float32Array(s.length);for(let a=0;a<s.length;a+=o){let{mean:r,scale:i}=gt(s,a,o),[h,c]=[0,0];for(let u=0;u<o;u+=1){let d=e[a+u]*t[u];h+=d/
o,c+=d*(s[a+u]-r)*i/o}for(let u=0;u<o;u+=1){let d=(s[a+u]-r)*i;n[a+u]=i*(e[a+u]*t[u]-h-d*c)}}return n}function Ys(s,t,e,o,n){let{width:a,hidden:r,heads:i,headDim:h}=s.
sizes,c=k=>s.of(t,k),u=(...k)=>k[0].map((q,g)=>k.reduce((S,R)=>S+R[g],0)),p=st(n,c("down.weight"),r).map((k,q)=>k*Ge(e.up[q])),m=st(p,c("up.weight"),a),w=u(n,ce(
e.middle,c("hidden_norm.weight"),m)),f=Wt(w,e.concatenated,i*h),y=st(w,c("attention.o_proj.weight"),i*h),{dq:b,dk:v,dv:$}=Js(s,e,o,y),M={q:ht(b,s.sizes,-1),k:ht(
v,s.sizes,-1),v:$},E={q:Wt(M.q,e.normed,a),k:Wt(M.k,e.normed,a),v:Wt(M.v,e.normed,a),o:f},L=u(st(M.q,c("attention.q_proj.weight"),a),st(M.k,c("attention.k_proj.\
weight"),a),st(M.v,c("attention.v_proj.weight"),a));return{gradient:E,dInput:u(w,ce(e.input,c("attention_norm.weight"),L))}}function Js(s,t,e,o){let{heads:n,headDim:a}=s.
sizes,{q:r,k:i,v:h}=t,c=n*a,u=r.length/c,[d,p,m]=[new Float32Array(r.length),new Float32Array(r.length),new Float32Array(r.length)],w=new Float64Array(u);for(let f of kt(
e)){let y=1/Math.sqrt(f.length*a),[b,v]=[f[0]*a,f.length*a],$=t.weights[f[0]],M=e.merged||e.heads[f[0]].pattern===null;for(let E=0;E<u;E+=1){let L=0;for(let k=0;k<=
E;k+=1){let q=$[E*u+k],g=0;for(let S=b;S<b+v;S+=1){let R=o[E*c+S]*e.heads[Math.floor(S/a)].scale;g+=R*h[k*c+S],m[k*c+S]+=q*R}w[k]=g,L+=q*g}if(M)for(let k=0;k<=E;k+=
1){let q=$[E*u+k]*(w[k]-L)*y;for(let g=b;g<b+v;g+=1)d[E*c+g]+=q*i[k*c+g],p[k*c+g]+=q*r[E*c+g]}}}return{dq:d,dk:s.shared(p,e.kvHeads),dv:s.shared(m,e.kvHeads)}}var hs=new Map;function xt(s,t,e){let o=s.run(e),n=hs.get(e);if(n?.run!==o){let u=e==="before"?O(s.sizes):s.settings;n={run:o,found:is(s.model,o,u)},hs.set(e,n)}
let{heads:a,headDim:r,width:i}=s.sizes,{q:h}=n.found[t],c=r*i;return Array.from({length:a},(u,d)=>{let p=0;for(let m=d*c;m<(d+1)*c;m+=1)p+=h[m]**2;return Math.sqrt(
p)})}function D(s,{layers:t,heads:e}){let o=/^L(\d+)H(\d+)$/.exec(s);if(!o)return null;let[n,a]=[Number(o[1]),Number(o[2])];return n<t&&a<e?[n,a]:null}var z=(s,t)=>`\
L${s}H${t}`,de=s=>Array.from({length:s},(t,e)=>s-e).filter(t=>s%t===0),lt=s=>s.map(t=>({...t,heads:t.heads.map(e=>({...e}))}));function ue(s){let t={scale:[],pattern:[],
merge:[],kv:[]};s.forEach(({heads:o,merged:n,kvHeads:a},r)=>{o.forEach(({scale:i,pattern:h},c)=>{i!==1&&t.scale.push(`${z(r,c)}:${Number(i.toFixed(2))}`),h&&t.pattern.
push(`${z(r,c)}:${h}`)}),n&&t.merge.push(String(r)),a!==o.length&&t.kv.push(`${r}:${a}`)});let e=Object.entries(t).map(([o,n])=>[o,n.join(",")]);return Object.fromEntries(
e.filter(([,o])=>o))}function ls(s,t){let e=O(t),o=n=>(s[n]??"").split(",").map(a=>[...a.split(":"),"",""].slice(0,2));for(let[n,a]of o("scale")){let r=D(n,t),i=Number(
a);r&&a&&i>=0&&i<=1&&(e[r[0]].heads[r[1]].scale=i)}for(let[n,a]of o("pattern")){let r=D(n,t),i=bt.find(h=>h===a);r&&i&&(e[r[0]].heads[r[1]].pattern=i)}for(let[n]of o(
"merge"))/^\d+$/.test(n)&&e[Number(n)]&&(e[Number(n)].merged=!0);for(let[n,a]of o("kv"))!/^\d+$/.test(n)||!e[Number(n)]||de(t.heads).includes(Number(a))&&(e[Number(
n)].kvHeads=Number(a));return e}var W=s=>new URLSearchParams(ue(s)).toString(),cs=s=>s.flatMap(({heads:t},e)=>t.flatMap(({scale:o,pattern:n},a)=>o!==1||n?[z(e,a)]:
[])),ds=s=>s.flatMap(({heads:t},e)=>t.flatMap(({scale:o},n)=>o===0?[z(e,n)]:[])),$t=(s,{headDim:t})=>s.reduce((e,{kvHeads:o})=>e+2*o*t*2,0);var C=(s,t)=>s.card.heads[t]??[],Mt=()=>z(0,0),Q=s=>D(C(s,"induction")[0]??"",s.sizes)?.[0]??0,me=s=>s.length>1?`${s.slice(0,-1).join(", ")} and ${s.at(-1)}`:s.
join(""),pe=s=>`${Math.round(100*s)} %`,ot=(s,t)=>s.changedHeads.every(e=>t.includes(e))&&s.settings.every(({merged:e,kvHeads:o,heads:n})=>!e&&o===n.length),fe=s=>s.
off.length===1&&ot(s,s.off),Ht=(s,t)=>s.row("after").reduce((e,o,n)=>e+(t(n)?o:0),0),we=s=>s.token===s.tokens.length-1;function ct(s,t,e,o,n=1){let a=s.tokens.length-
1;return s.probability(t,e,a)>n*s.probability(t,o,a)}var us=s=>s.data.words[s.guesses("after")[s.tokens.length-1]];function ge(s,t){let e=O(s.sizes);return e[t].
kvHeads=Math.max(1,s.sizes.heads/2),e}var xe=Array(3).fill("whale key fat Ben men apple opened Kim today").join(" "),ms="<now> <town> the keys that the man near the door sees",Ft="<past> <sea> the s\
hips drifted . <now> <town> the doors behind the house",[ye,ps]=[["is","was"],["are","were"]],[be,ke]=[["is","are","opens","open","shines","shine"],["was","were",
"opened","shone"]],Xs={id:"agreement",title:"Agreement over distance",about:()=>"In “the keys that the man near the door sees”, the verb that comes next belongs\
 to “keys”, seven words back. Two other nouns, “man” and “door”, are closer.",text:ms,head:Mt,terms:["head","weight"],steps:[{text:()=>"Find a head \
that looks from the last word, “sees”, back to the subject, “keys”, with a weight above 0.5. Click the names of heads and read the line below the words.",
done:s=>we(s)&&!s.changed&&Ht(s,t=>s.word(t)==="keys")>.5},{text:()=>"Switch off one head (untick it) to make “is” the likeliest next word. If it does not work,\
 switch the head on again and try a different one.",done:s=>fe(s)&&ct(s,"before",ps,ye)&&ye.includes(us(s))},{text:()=>"Switch it on again. Then delete one lett\
er of the text to make “is” at least twice as likely as “are”.",done:s=>!s.changed&&s.text.trim().length===ms.length-1&&ct(s,"after",ye,ps,2)}],learned:s=>`${s.
card.agreement} tells the verb whether its subject is one or many. It looks past the nouns in between, although they are closer.`},Zs={id:"delimiters",title:"De\
limiters",about:()=>"Marks such as <now> and <town> open a sentence and state its tense and place. Nearly every later word depends on them.",text:Ft,head:Mt,terms:[
"the language","weight"],steps:[{text:s=>`Find a head of layer ${s.sizes.layers-1} that gives at least 80 % of its weight from the last word to the marks of thi\
s sentence, <now> and <town>.`,done:s=>{let t=s.tokens.map((o,n)=>n).filter(o=>o>0&&s.data.special.includes(s.word(o))).slice(-2);return we(s)&&s.layer===s.sizes.
layers-1&&!s.changed&&Ht(s,o=>t.includes(o))>=.8}},{text:()=>"Switch off one such head and nothing else. The sentence still says <now>, but verbs of the past (w\
as, opened) must become likelier than verbs of the present (is, opens). If they do not, try a different head that looks at the marks.",done:s=>fe(s)&&ct(s,"befo\
re",be,ke)&&ct(s,"after",ke,be)},{text:()=>"Reset the heads. Then change one mark in the text to make the trained model prefer the past.",done:s=>!s.changed&&s.
text.trim()!==Ft&&ct(s,"after",ke,be,2)}],learned:s=>`${s.card.marks} reads tense and place from the marks. In models of human language, too, many heads look at\
 delimiters, often because they have nothing else to do. Here the marks carry information.`},to={id:"induction",title:"Previous word and induction",about:()=>"T\
he text repeats nine words three times. After the first round the model predicts every word: heads of two layers work together to copy.",text:xe,head:s=>C(s,"pr\
evious")[0],terms:["words copied","attention map","pattern by hand"],steps:[{text:s=>`Choose an induction head (${me(C(s,"induction"))}) and a word of the secon\
d round, such as the second “fat”. The head must give a weight above 0.5 to the word that followed the first “fat”: “Ben”.`,done:s=>{let{round:t,token:e}=s;
return t>0&&e>=t&&e<2*t-1&&C(s,"induction").includes(s.headName)&&Ht(s,n=>n===e-t+2)>.5}},{text:()=>"Choose the head of an earlier layer that looks at the previ\
ous word: the dark squares of its map are just below the diagonal.",done:s=>C(s,"previous").includes(s.headName)},{text:()=>"Switch off this head and nothing el\
se. The model must copy at most 70 % of the words: see “words copied” below the heads.",done:s=>s.changed&&ot(s,C(s,"previous"))&&s.copied("after")<=.7*s.copied(
"before")},{text:()=>"Repair it by hand: switch the head on and choose “previous word” in the list below the heads. The model must copy at least 90 % again.",
done:s=>ot(s,C(s,"previous"))&&C(s,"previous").some(t=>{let[e,o]=D(t,s.sizes)??[0,0];return s.settings[e].heads[o].pattern==="previous"})&&s.copied("after")>=.9}],
learned:()=>"The earlier head tells each word which word came before it. The induction heads use this: from the second “fat” they look for the word that came af\
ter a “fat”. Only where the earlier head looks matters: your pattern works as well as the trained one. Without it some copying survives, because a second head o\
f that layer also looks back."},eo={id:"redundancy",title:"Redundancy",about:s=>`${C(s,"induction").length} heads do the same: in a repeated text, they look at \
the word that followed the earlier copy (${me(C(s,"induction"))}). How many does the model need?`,text:xe,head:s=>C(s,"induction")[0],terms:["words copied"],steps:[
{text:()=>"Switch off one induction head. The model must still copy 90 % of the words: see “words copied” below the heads.",done:s=>s.off.length===1&&C(s,"\
induction").includes(s.off[0])&&s.copied("after")>=.9},{text:()=>"Switch off all induction heads and nothing else. The model copies at most 10 %.",done:s=>{let t=C(
s,"induction");return t.every(e=>s.off.includes(e))&&ot(s,t)&&s.copied("after")<=.1}},{text:()=>"Find two induction heads that are enough: with all others off, \
the model copies at least 95 %.",done:s=>{let t=C(s,"induction");return t.filter(o=>!s.changedHeads.includes(o)).length===2&&s.off.length===t.length-2&&ot(s,t)&&
s.copied("after")>=.95}}],learned:()=>"A head may do necessary work although the model does not miss it, because other heads do the same. To measure the importa\
nce of a group, remove the whole group: one head at a time is misleading."},so={id:"merge",title:"One head or many",about:()=>"A layer has four heads, and each \
has its own weights for every word. Merge them into one head with the same matrices: it has only one set of weights. When does that change the output?",text:xe,
head:s=>C(s,"induction")[0],token:12,gradients:!0,terms:["query, key, value","W_O","one head","gradient"],steps:[{text:s=>`Merge the heads of layer ${Q(s)}: tic\
k “one head” above them.`,done:s=>s.settings[Q(s)].merged},{text:()=>"Choose a word, not the first, at which the output of the merged head differs by less t\
han 15 % from that of the four heads. The differences are listed below, and the table shows where each head looks.",done:s=>s.settings[Q(s)].merged&&s.token>0&&
s.difference(Q(s))<.15},{text:()=>"Now choose a word at which it differs by more than 50 %. Compare where the four heads look there.",done:s=>s.settings[Q(s)].
merged&&s.difference(Q(s))>.5},{text:()=>"Separate the heads again (Undo or Reset). The table shows the gradient of W_Q: how strongly training on this text woul\
d change each head. Click the name of the head with the largest gradient in “Heads”.",done:s=>{let t=Q(s);if(s.changed||s.layer!==t)return!1;let e=xt(s,t,"b\
efore");return e[s.head]===Math.max(...e)}}],learned:()=>"One head and many agree only where all heads have the same weights, with nearly everything on one word\
 or the same on every word. At the first word this is always true: it can only look at itself. Elsewhere one pattern replaces several. The gradients differ, too\
: the W_Q of a separate head learns from the scores of this head. The merged head has one score for each pair of words; its gradient is a sum over all parts of \
the vector, and it changes every part of W_Q."},oo={id:"grouped",title:"Grouped-query attention",about:()=>"While a model writes text, it stores the key and the\
 value of every earlier word: the KV cache. Heads that share keys and values need a smaller cache. Here they share the mean of theirs, and the model is not trai\
ned again.",text:Ft,head:Mt,terms:["query, key, value","keys/values","KV cache","mean loss"],steps:[{text:()=>"Give one layer a single set of keys and values: c\
hoose 1 in its list “keys/values”. Watch the KV cache and the mean loss below the heads.",done:s=>s.settings.some(({kvHeads:t})=>t===1)&&s.lossGrowth()!==null},
{text:()=>"With 2 sets, heads share in pairs. Try this on each layer alone (Reset in between), wait for the loss each time, and end with the layer that raises t\
he loss least.",done:s=>{let t=s.settings.map((o,n)=>({key:W(ge(s,n)),growth:s.lossGrowth(ge(s,n))}));if(t.some(({growth:o})=>o===null))return!1;let e=t.reduce(
(o,n)=>(n.growth??0)<(o.growth??0)?n:o);return W(s.settings)===e.key}},{text:s=>`Shrink the cache to a quarter, ${$t(O(s.sizes),s.sizes)/4} bytes per word, and \
read how much the loss rises.`,done:s=>s.cacheBytes<=$t(O(s.sizes),s.sizes)/4&&s.lossGrowth()!==null}],learned:s=>{let t=s.lossGrowth();return`With a quarter of\
 the cache, the loss is${t===null?"":` ${pe(t)}`} higher: heads with different jobs cannot share the keys that they were trained with. Real models are trained w\
ith shared keys and values, or trained further after sharing.`}},ve=(s,t)=>({text:()=>`Switch off ${s===1?"one head":`${s} heads in all`}. The mean loss may be \
at most ${pe(t)} higher.`,done:e=>{let o=e.lossGrowth();return e.off.length>=s&&ot(e,e.off)&&o!==null&&o<=t}}),no={id:"pruning",title:"Pruning",about:s=>`Remove\
 heads one by one. After each change, the page measures the mean loss over ${s.data.samples.length} sample texts: it is below the heads. Start with heads that d\
o the same as others.`,text:Ft,head:Mt,terms:["mean loss"],steps:[ve(1,.02),ve(3,.06),ve(5,.15)],learned:()=>"Some heads cost little and some cost much, and the\
 costs do not add up: after each removal, the order changes. This is why tools measure again after each removal. multihead prune also refits the remaining heads\
."},dt=[Xs,Zs,to,eo,so,oo,no];function fs(s,t){s.lesson=t.id,s.text=t.text,s.chosen=t.token??null;let e=D(t.head(s)??"",s.sizes);e&&([s.layer,s.head]=e),s.settings=
lt(O(s.sizes)),s.past=[]}var Dt=class{constructor(t,e){this.session=t,this.changed=e,this.tabs=l("div",{class:"lessontabs",role:"group","aria-label":"lessons"}),this.tabs.append(l("butt\
on",{type:"button","data-lesson":""},"Free play"));for(let{id:o,title:n}of dt)this.tabs.append(l("button",{type:"button","data-lesson":o},n));this.tabs.addEventListener(
"click",o=>{let n=U(o,"button[data-lesson]");n&&this.open(n.dataset.lesson??"")}),this.panel=l("div",{class:"lesson",tabindex:"-1"}),this.bar=l("div",{class:"st\
epbar",hidden:!0}),new IntersectionObserver(([o])=>{this.bar.classList.toggle("needed",!o.isIntersecting)}).observe(this.panel),this.box=l("section",{class:"les\
sons","aria-label":"lessons"},this.tabs,this.panel)}reached({id:t,steps:e}){return Math.min(this.session.progress.get(t)??0,e.length)}get lesson(){return dt.find(
({id:t})=>t===this.session.lesson)??null}open(t){let e=dt.find(o=>o.id===t);e?(this.session.progress.delete(t),fs(this.session,e)):this.session.lesson="",this.changed()}choose(t){
this.session.chosen=t,this.changed()}check(){let{lesson:t,session:e}=this;if(!t)return;let o=this.reached(t);t.steps[o]?.done(e)&&(e.progress.set(t.id,o+1),B(o+
1===t.steps.length?`Lesson done. ${t.learned(e)}`:`Step ${o+1} done.`))}update(){this.check();let{lesson:t,session:e}=this;for(let r of this.tabs.querySelectorAll(
"button")){let i=r.dataset.lesson??"";r.setAttribute("aria-pressed",String(i===(t?.id??"")));let h=dt.find(c=>c.id===i);r.classList.toggle("done",h!==void 0&&this.
reached(h)===h.steps.length)}if(this.bar.hidden=!t,!t){V(this.panel,...this.welcome());return}let o=this.reached(t),n=o===t.steps.length,a=t.steps.map((r,i)=>{let h=i<
o?"done":i===o?"now":"later",c=l("span",{class:"sign","aria-label":h==="done"?"done":null},h==="done"?"✓":`${i+1}`);return l("li",{class:h,"aria-current":h===
"now"?"step":null},c,l("span",{},r.text(e)))});V(this.panel,l("p",{class:"lead"},t.about(e)),l("p",{class:"terms"},...t.terms.map(r=>l("span",{},r," ",T(r)))),l(
"ol",{class:"lessonsteps"},...a),n?l("p",{class:"learned"},l("b",{},"Done. "),t.learned(e)):"",t.gradients?this.gradients():""),this.drawBar(t,o)}welcome(){let{
layers:t,heads:e}=this.session.sizes,o=dt[0],n=l("button",{type:"button",class:"primary",onclick:()=>this.open(o.id)});return n.append(`Start the first lesson: ${o.
title}`),[l("p",{class:"lead"},`A small language model runs in this page. It reads the words below and predicts the next one. Its ${t*e} heads decide which earl\
ier words each word takes information from. Switch a head off, and see how the prediction changes.`),n]}drawBar(t,e){let{steps:o}=t,n=e?l("b",{class:"passed"},`\
✓ Step ${e} done. `):"",a=e<o.length?l("span",{},l("b",{},`Step ${e+1} of ${o.length}: `),o[e].text(this.session)):l("span",{},l("b",{},"The lesson is done.")),
i=l("button",{type:"button","aria-label":"Show the lesson",onclick:()=>{this.panel.scrollIntoView({block:"nearest"}),this.panel.focus({preventScroll:!0})}},"Les\
son");V(this.bar,l("p",{},n,a),i)}gradients(){let{session:t}=this,{layer:e,sizes:o,token:n}=t,a=t.settings[e].merged,[r,i]=[xt(t,e,"before"),xt(t,e,"after")],h=Array.
from({length:o.heads},(p,m)=>{let w=t.row("before",z(e,m)),f=w.indexOf(w.reduce((v,$)=>Math.max(v,$))),y=`${t.word(f)} ${H(w[f])}`,b=a?l("td",{},N(i[m])):null;return l(
"tr",{},l("th",{scope:"row"},z(e,m)),l("td",{},y),l("td",{},N(r[m])),b)}),c=l("tr",{},l("th",{scope:"col"},"head"),l("th",{scope:"col"},"looks most at"),l("th",
{scope:"col"},"gradient of W_Q ",T("gradient")),a?l("th",{scope:"col"},"its part of W_Q, merged"):null),u=a?`After “${t.word(n)}”, the outputs of layer ${e}\
 differ by ${Z(t.difference(e))} from those of separate heads.`:`Layer ${e} has separate heads.`,d=a?t.tokens.map((p,m)=>{let w=`${t.word(m)} ${Math.round(100*t.
difference(e,m))}`;return l("button",{type:"button",class:"suggestion",onclick:()=>this.choose(m)},w)}):[];return l("div",{class:"beside"},l("p",{class:"apart"},
u),a?l("p",{class:"dim"},"Difference after each word, in percent:"):null,a?l("div",{class:"suggestions"},...d):null,l("table",{class:"gradients"},l("thead",{},c),
l("tbody",{},...h)))}};function ao({q:s,k:t,dim:e},o,n,a,r){let i=o*e,h=i+e,c=n;for(;c+3<a;c+=4){let[u,d,p,m]=[0,0,0,0];for(let w=i,f=c*e;w<h;w+=1,f+=1){let y=s[w];u+=y*t[f],d+=y*t[f+
e],p+=y*t[f+2*e],m+=y*t[f+3*e]}r[c]=u,r[c+1]=d,r[c+2]=p,r[c+3]=m}for(;c<a;c+=1){let u=0;for(let d=i,p=c*e;d<h;d+=1,p+=1)u+=s[d]*t[p];r[c]=u}}function ws(s,t,e){
let{bias:o,softcap:n,sink:a}=s,[r,i,h]=[s.first[t],s.end[t],s.first.length-1-t];e.fill(0),ao(s,t,r,i,e);let c=a===void 0?-1/0:a;for(let d=r;d<i;d+=1)n!==void 0&&
(e[d]=n*Math.tanh(e[d]/n)),o&&(e[d]+=o[d+h]),e[d]>c&&(c=e[d]);let u=a===void 0?0:Math.exp(a-c);for(let d=r;d<i;d+=1)e[d]=Math.exp(e[d]-c),u+=e[d];for(let d=r;d<
i;d+=1)e[d]/=u;return e}var ro=40,io=()=>new Promise(s=>setTimeout(s)),$e=s=>255*Math.sqrt(s)+.5,ut=class s{constructor(t,e,o){this.name=t,this.queries=o.queries,this.keys=o.keys,this.
rows=e.sequences[o.rows],this.columns=e.sequences[o.columns],this.square=o.rows===o.columns,this.coded=null,this.qk=null,this.norms=null,this.completing=null}static async read(t,e,o,n,a){
let r=new s(t,e,o);return n.map!==void 0?r.coded=await X(n.map):r.qk=await ho(n),o.norms!==null&&(r.norms=nt(await X(o.norms)).subarray(a*o.keys,(a+1)*o.keys)),
r}static fromWeights(t,e,o){let n=e.shown.length,a={label:"",queries:n,keys:n,rows:0,columns:0,norms:null,heads:[]};return s.fromCodes(t,{sequences:[e]},a,Uint8Array.
from(o,$e))}static fromCodes(t,e,o,n){let a=new s(t,e,o);return a.coded=n,a}complete(){return this.completing??=this.computeAll(),this.completing}async computeAll(){
if(this.coded)return;let t=new Uint8Array(this.queries*this.keys),e=performance.now();for(let o=0;o<this.queries;o+=1){let n=this.row(o);for(let a=0,r=o*this.keys;a<
this.keys;a+=1)t[r+a]=$e(n[a]);performance.now()-e>ro&&(await io(),e=performance.now())}this.coded=t}get bytes(){return(this.coded?.length??0)+(this.qk?4*(this.
qk.q.length+this.qk.k.length):0)}row(t){let e=new Float32Array(this.keys);if(this.qk)return ws(this.qk,t,e);if(this.coded)for(let o=0;o<this.keys;o+=1)e[o]=(this.
coded[t*this.keys+o]/255)**2;return e}column(t){let e=new Float32Array(this.queries),o=this.coded;if(o)for(let n=0;n<this.queries;n+=1)e[n]=(o[n*this.keys+t]/255)**
2;return e}weights(t,e){return t?this.row(e):this.column(e)}async preview(t){if(this.coded)return{coded:this.coded,queries:this.queries,keys:this.keys};let e=Math.
min(t,this.queries),o=new Uint8Array(e*this.keys);for(let n=0;n<e;n+=1){let a=this.row(Math.floor((n+.5)*this.queries/e));for(let r=0;r<this.keys;r+=1)o[n*this.
keys+r]=$e(a[r])}return{coded:o,queries:e,keys:this.keys}}reweighted(t,e){let o=t?this.norms:null,n=e&&this.columns.special.some(Boolean);if(!o&&!n)return this;
let a=new Float32Array(this.keys).fill(1);for(let i=0;i<this.keys;i+=1)o&&(a[i]=o[i]),n&&this.columns.special[i]&&(a[i]=0);let r=Object.create(this);return r.row=
i=>lo(this.row(i),a),this.coded&&(r.coded=co(this.coded,this.queries,this.keys,a)),r}};async function ho(s){let{q:t,k:e,first:o,end:n,dim:a}=s,r=await Promise.all(
[t,e,o,n].map(X)),i=s.wide?nt:Et;return{q:i(r[0]),k:i(r[1]),first:Xt(r[2]),end:Xt(r[3]),dim:a,bias:s.bias===void 0?null:nt(await X(s.bias)),softcap:s.softcap,sink:s.
sink}}function lo(s,t){let e=0;for(let o=0;o<s.length;o+=1)s[o]*=t[o],e+=s[o];if(e>0)for(let o=0;o<s.length;o+=1)s[o]/=e;return s}function co(s,t,e,o){let n=new Uint8Array(
s.length);for(let a=0;a<t;a+=1){let r=a*e,i=0;for(let h=0;h<e;h+=1)i+=s[r+h]**2*o[h];if(i!==0)for(let h=0;h<e;h+=1)n[r+h]=Math.round(s[r+h]*Math.sqrt(o[h]/i*255*
255))}return n}function Me(s){_("trouble").textContent=s,_("trouble").hidden=!s}async function uo(s,t){try{return await fetch(s,{...t,cache:"no-store"})}catch(e){throw Te(e)||
Me("The server does not answer. Is multihead serve still running?"),e}}async function mo(s,t,e){let o=Object.entries(t).map(([a,r])=>[a,String(r)]),n=await uo(`${s}\
?${new URLSearchParams(o)}`,{signal:e});if(!n.ok){let a=await n.text();throw Me(a),new Error(a)}return Me(""),n}async function Bt(s,t,e){let o=await mo(s,t,e);return new Uint8Array(
await o.arrayBuffer())}var Te=s=>s instanceof DOMException&&s.name==="AbortError";var gs=4096,po=256,fo=120,Tt=class s extends ut{constructor(t,e,o,n){super(t,e,o),this.where=n,this.lines=new Map,this.overview=null,this.latest=null,this.asking=
null,this.controller=null,this.timer=0,this.variants=new Map,this.source=[t,e,o]}complete(){return Promise.resolve()}get bytes(){return 4*this.keys*this.lines.size+
2e6}reweighted(t,e){if(!t&&!e)return this;let o=`${t} ${e}`,n=this.variants.get(o);if(!n){let a={...this.where,...t?{norm:1}:{},...e?{hide:1}:{}};n=new s(...this.
source,a),this.variants.set(o,n)}return n}weights(t,e){return this.lines.get(`${t?"row":"column"} ${e}`)??null}async fetchWeights(t,e){let o=this.weights(t,e);if(o)
return o;let n=t?"row":"column",a=nt(await Bt(n,{...this.where,i:e}));return this.lines.size>=po&&this.lines.delete(this.lines.keys().next().value??""),this.lines.
set(`${n} ${e}`,a),a}picture(t,e,o,n){let[a,r]=[Math.floor(t.x),Math.floor(t.y)],i=Math.min(this.keys,Math.ceil(t.x+t.w-1e-9))-a,h=Math.min(this.queries,Math.ceil(
t.y+t.h-1e-9))-r,c={width:Math.min(i,e,gs),height:Math.min(h,o,gs)},u={x:a,y:r,w:i,h,...c},d=Object.values(u).join(" ");return this.latest?.key===d?this.latest:
this.overview?.key===d?this.overview:(this.asking!==d&&(this.cancel(),this.asking=d,this.timer=window.setTimeout(()=>this.fetchPicture(u,d,n),this.overview?fo:0)),
this.overview)}async fetchPicture(t,e,o){this.controller=new AbortController;try{let n=await Bt("map",{...this.where,...t},this.controller.signal);this.latest={
key:e,part:t,coded:n,keys:t.width,queries:t.height},t.w===this.keys&&t.h===this.queries&&(this.overview=this.latest),this.asking=null,o()}catch(n){this.asking===
e&&(this.asking=null),Te(n)||B(String(n))}}cancel(){clearTimeout(this.timer),this.controller?.abort(),this.asking=null}async preview(t){let[e,o]=[Math.min(t,this.
keys),Math.min(t,this.queries)],n={x:0,y:0,w:this.keys,h:this.queries,width:e,height:o,thin:1};return{coded:await Bt("map",{...this.where,...n}),keys:e,queries:o}}};
function ys({part:s,keys:t,queries:e},o){let[n,a]=[t/s.w,e/s.h];return{x:(o.x-s.x)*n,y:(o.y-s.y)*a,w:o.w*n,h:o.h*a}}var wo=104,go=22,bs=11,yo=720,ks=4,Ut=class{constructor({point:t,pick:e,drawn:o}){this.point=t,this.pick=e,this.drawn=o,this.map=null,this.window={x:0,y:0,w:1,h:1},
this.mark={row:null,column:null},this.width=0,this.height=0,this.room=0,this.type=1,this.dragged=!1,this.painted=null,this.pointers=new Map,this.canvas=l("canva\
s",{class:"map",role:"img",tabindex:"-1"}),this.box=l("div",{class:"mapbox"},this.canvas),this.canvas.addEventListener("wheel",n=>this.onWheel(n),{passive:!1}),
this.canvas.addEventListener("pointerdown",n=>this.onDown(n)),this.canvas.addEventListener("pointermove",n=>this.onMove(n)),this.canvas.addEventListener("pointe\
rup",n=>this.onUp(n)),this.canvas.addEventListener("pointercancel",n=>this.pointers.delete(n.pointerId)),this.canvas.addEventListener("pointerleave",()=>this.point(
null)),this.canvas.addEventListener("dblclick",()=>this.showAll())}get labels(){return Math.round(wo*this.type)}get place(){return{left:this.labels,width:this.width,
window:this.window}}show(t){let e=this.map&&this.map.queries===t.queries&&this.map.keys===t.keys;this.map=t,e||(this.window={x:0,y:0,w:t.keys,h:t.queries});let o=`${t.
queries} queries down, ${t.keys} keys across`,n=`Attention map of ${t.name}: ${o}. The text below has the same weights.`;this.canvas.setAttribute("aria-label",n)}clear(){
rt(this.canvas,this.canvas.clientWidth,this.canvas.clientHeight)}showAll(){this.map&&(this.window={x:0,y:0,w:this.map.keys,h:this.map.queries},this.draw())}zoom(t,e=this.
width/2,o=this.height/2){let{map:n,window:a}=this;if(!n)return;let[r,i]=[a.x+e/this.width*a.w,a.y+o/this.height*a.h],h=Math.max(Math.min(ks,n.keys),Math.min(n.keys,
a.w/t)),c=Math.max(Math.min(ks,n.queries),Math.min(n.queries,a.h/t));this.window={w:h,h:c,x:r-e/this.width*h,y:i-o/this.height*c},this.draw()}clampWindow(){let{
map:t,window:e}=this;t&&(e.x=Math.max(0,Math.min(t.keys-e.w,e.x)),e.y=Math.max(0,Math.min(t.queries-e.h,e.y)))}onWheel(t){if(t.deltaY>0&&this.window.w>=(this.map?.
keys??0)&&!t.ctrlKey&&!t.metaKey)return;t.preventDefault();let[o,n]=J(t,this.canvas);this.zoom(Math.exp(-t.deltaY/300),o-this.labels,n-this.labels)}onDown(t){this.
canvas.setPointerCapture(t.pointerId),this.pointers.set(t.pointerId,J(t,this.canvas)),this.dragged=!1}onMove(t){let e=J(t,this.canvas),o=this.pointers.get(t.pointerId);
if(!o){this.point(this.cellAt(e));return}let n=[...this.pointers].find(([a])=>a!==t.pointerId)?.[1];if(n){let a=h=>Math.hypot(h[0]-n[0],h[1]-n[1]),[r,i]=[(e[0]+
n[0])/2-this.labels,(e[1]+n[1])/2-this.labels];this.dragged=!0,this.zoom(a(e)/Math.max(1,a(o)),r,i)}else if(this.dragged||Math.hypot(e[0]-o[0],e[1]-o[1])>4)this.
dragged=!0,this.window.x-=(e[0]-o[0])/this.width*this.window.w,this.window.y-=(e[1]-o[1])/this.height*this.window.h,this.draw();else return;this.pointers.set(t.
pointerId,e)}onUp(t){if(this.pointers.delete(t.pointerId),this.dragged)return;let e=this.cellAt(J(t,this.canvas));e&&this.pick(e)}cellAt([t,e]){let{map:o,window:n}=this;
if(!o||t<this.labels||e<this.labels)return null;let a=Math.floor(n.x+(t-this.labels)/this.width*n.w),r=Math.floor(n.y+(e-this.labels)/this.height*n.h);return r>=
0&&a>=0&&r<o.queries&&a<o.keys?[r,a]:null}observeRoom(){let t=()=>{let e=this.box.clientWidth;return e===this.room?!1:(this.room=e,this.type=qt(),!0)};t(),new ResizeObserver(
()=>t()&&this.draw()).observe(this.box)}draw(){let{map:t}=this;if(!t)return;this.clampWindow(),this.room||this.observeRoom(),this.width=Math.max(80,Math.min(this.
room||560,this.type*yo)-this.labels),this.height=Math.max(80,Math.min(1.6*this.width,this.width*t.queries/t.keys));let e=rt(this.canvas,this.width+this.labels,this.
height+this.labels),o=Math.round(this.labels*wt()),n=this.paint(t);this.canvas.toggleAttribute("data-waiting",t instanceof Tt&&t.asking!==null),n&&e.putImageData(
n,o,o),this.drawFrame(e,t),this.drawMarks(e),this.drawn()}paint(t){let e=wt(),[o,n]=[Math.round(this.width*e),Math.round(this.height*e)],a=()=>this.box.isConnected&&
this.draw(),r=t instanceof Tt?t.picture(this.window,o,n,a):null,i=t.coded??r?.coded;if(!i)return null;let h=[...Object.values(this.window),o,n].join(" ");if(this.
painted?.key!==h||this.painted.from!==i){let c=r??{coded:i,keys:t.keys,queries:t.queries},u=r?ys(r,this.window):this.window;this.painted={key:h,from:i,image:ss(
c,u,o,n)}}return this.painted.image}drawFrame(t,e){let{window:o,width:n,height:a,labels:r,type:i}=this,[h,c]=[n/o.w,a/o.h];t.strokeStyle=F("--line"),t.strokeRect(
r-.5,r-.5,n+1,a+1),t.font=`600 ${12*i}px ${Ct}`,t.fillStyle=F("--ink"),t.textBaseline="middle",t.textAlign="center",t.fillText(n<180*i?"key":"key: the token loo\
ked at",r+n/2,8*i),ne(t,a<180*i?"query":"query: the token that looks",8*i,r+a/2),t.textAlign="right";let u=(m,w,f)=>(t.fillStyle=F(f?"--ink":w?"--faint":"--dim"),
t.font=`${f?"600 ":""}${11*i}px ${Ct}`,bo(t,m,r-(go+8)*i)),d=Math.max(1,Math.ceil(i*bs/c));for(let m=Math.ceil(o.y/d-1e-9)*d;m<Math.min(e.queries,o.y+o.h);m+=d){
let w=r+(m+.5-o.y)*c;w<r+2||w>r+a-2||t.fillText(u(e.rows.shown[m],e.rows.special[m],m===this.mark.row),r-6,w)}t.textAlign="left";let p=Math.max(1,Math.ceil(i*bs/
h));for(let m=Math.ceil(o.x/p-1e-9)*p;m<Math.min(e.keys,o.x+o.w);m+=p){let w=r+(m+.5-o.x)*h;if(w<r+2||w>r+n-2)continue;let f=u(e.columns.shown[m],e.columns.special[m],
m===this.mark.column);ne(t,f,w,r-6)}}drawMarks(t){let{window:e,width:o,height:n,labels:a}=this,{row:r,column:i}=this.mark,[h,c]=[o/e.w,n/e.h];t.save(),t.beginPath(),
t.rect(a,a,o,n),t.clip(),t.strokeStyle=F("--mark"),t.lineWidth=1.5,r!==null&&t.strokeRect(a-2,a+(r-e.y)*c,o+4,Math.max(2,c)),i!==null&&t.strokeRect(a+(i-e.x)*h,
a-2,Math.max(2,h),n+4),t.restore()}savePng(){let{map:t}=this;if(!t)return;let e=l("canvas",{width:this.canvas.width,height:this.canvas.height}),o=at(e);o.fillStyle=
F("--paper"),o.fillRect(0,0,e.width,e.height),o.drawImage(this.canvas,0,0),e.toBlob(n=>n&&Ce(n,`${t.name}.png`))}};function bo(s,t,e){let o=tt(t,18);for(;o.length>
2&&s.measureText(o).width>e;)o=`${Array.from(o).slice(0,-2).join("")}…`;return o}var ko=["before","after"],Ae="Point at a square to read its weight; click it to choose its row.",vo=" Switching a head off changes the maps of later layers, not\
 its own.",Kt=class{constructor(t,e,o="trained model"){this.read=e,this.names={before:o,after:"with your switches"},this.title=l("h2",{}),this.hint=Ae,this.said=
l("p",{class:"cellnote"}),this.panes=ko.map(r=>{let i=new Ut({point:c=>this.say(r,c),pick:([c])=>t(c),drawn:()=>{}}),h=l("h3",{},this.names[r]);return{which:r,view:i,
name:h,box:l("div",{class:"pane"},h,i.box)}});let[n,a]=this.panes;this.box=l("section",{class:"maps"},l("div",{class:"inputtop"},this.title,T("attention map")),
l("div",{class:"panes"},n.box,a.box),this.said)}update(t,e,o,n){this.title.textContent=`Where ${t} looks`,this.hint=o.after?Ae+vo:Ae;for(let{which:a,view:r,box:i}of this.
panes){let h=o[a];i.hidden=!h,h&&(r.show(h),r.canvas.setAttribute("aria-label",`Attention map of ${t}, ${this.names[a]}. ${n}`),r.mark={row:e,column:null},r.draw())}
this.say("after",null)}say(t,e){this.said.textContent=e?this.read(t,e):this.hint}};var Gt=class{constructor(t,e){this.session=t,this.pair=new Kt(e,(o,n)=>this.read(o,n)),this.box=this.pair.box}update(){let{changed:t,headName:e,token:o}=this.session,
n={before:this.map("before"),after:t?this.map("after"):null};this.pair.update(e,o,n,"The computation below has its rows as numbers.")}map(t){let{session:e}=this,
{layer:o,head:n,headName:a}=e,r={shown:e.tokens.map((i,h)=>e.word(h)),joined_to_previous:e.tokens.map(()=>!1),special:e.tokens.map((i,h)=>e.data.special.includes(
e.word(h)))};return ut.fromWeights(a,r,e.run(t).layers[o].weights[n])}read(t,e){let{session:o}=this;if(e[1]>e[0])return"A word cannot look at later words.";let n=o.
row(t,o.headName,e[0])[e[1]],[a,r]=e.map(i=>`“${o.word(i)}”`);return`${a} looks at ${r} with weight ${H(n)}`}resize(){this.update()}};var xo=24;function $s(s,t,e="trained model"){return[...s.map(({word:n,before:a,after:r,actual:i})=>l("div",{class:i?"guess actual":"guess","data-word":n},l("spa\
n",{class:"guessed"},n,i?l("small",{}," (in the text)"):null),l("span",{class:"barpair"},xs("before",a),t?xs("after",r):null),l("span",{class:"chance"},vs(a),t?
l("b",{},vs(r)):null))),$o(t,e)]}var $o=(s,t)=>l("p",{class:"dim legendline"},l("span",{class:"swatch before"}),s?` ${t}`:` ${t}: no switch is changed`,s?l("spa\
n",{class:"swatch after"}):null,s?" with your switches":null);function Ms(s,t,e,o){let n=e.slice(0,xo).map(({token:i,text:h})=>l("button",{type:"button",class:"\
suggestion",onclick:()=>o(i)},h)),a=e.length-n.length,r=a>0?l("span",{class:"dim"},` and ${a} more`):"";V(s,l("p",{},t),...n,r)}var vs=s=>s<.001?"< 0.1 %":Z(s,
s<.01?1:2);function xs(s,t){let e=l("span",{class:`bar ${s}`});return e.style.width=`${Math.max(.5,100*t)}%`,e}var Ts=8,Vt=class{constructor(t,e){this.session=t,this.choose=e,this.title=l("h2",{}),this.bars=l("div",{class:"predictions"}),this.list=l("div",{class:"changes"}),
this.box=l("section",{class:"prediction","aria-label":"next word"},l("div",{class:"inputtop"},this.title,T("next word")),this.bars,this.list)}update(){let{session:t}=this,
{words:e}=t.data,o=t.token*e.length,[n,a]=[t.before,t.after].map(u=>u.probabilities.subarray(o,o+e.length)),r=e.map((u,d)=>d).sort((u,d)=>Math.max(n[d],a[d])-Math.
max(n[u],a[u])),i=t.tokens[t.token+1]?.id,h=r.slice(0,Ts);i!==void 0&&!h.includes(i)&&(h[Ts-1]=i),this.title.textContent=`Next word after “${t.word(t.token)}”`;
let c=h.map(u=>({word:e[u],before:n[u],after:a[u],actual:u===i}));this.bars.replaceChildren(...$s(c,t.changed)),this.drawChanges()}drawChanges(){let{session:t}=this;
if(!t.changed){this.list.replaceChildren();return}let e=t.changedGuesses,[o,n]=[t.guesses("before"),t.guesses("after")],a=e.length?`Likeliest next word changed \
after ${e.length} of ${t.tokens.length} words:`:"The likeliest next word is the same everywhere.",{words:r}=t.data,i=e.map(h=>({token:h,text:`${t.word(h)}: ${r[o[h]]}\
 → ${r[n[h]]}`}));Ms(this.list,a,i,this.choose)}};var Mo=()=>new Promise(s=>setTimeout(s)),Qt=class{constructor(t,e){this.session=t,this.done=e,this.turn=0;let{tokenizer:o,data:n}=t;this.texts=n.samples.map(a=>o.
read(a).map(({id:r})=>r))}async measure(){let{session:t}=this;this.turn+=1;let e=this.turn;for(let o of[void 0,lt(t.settings)]){let n=o?W(o):"";if(t.losses.has(
n))continue;let[a,r]=[0,0];for(let i of this.texts){if(await Mo(),e!==this.turn)return;a+=_t(t.model.run(i,o))*(i.length-1),r+=i.length-1}t.losses.set(n,a/r),this.
done()}}};var To=200,Yt=class{constructor(t,e){this.data=t,this.model=e,this.sizes=t.sizes,this.card=t.card,this.tokenizer=new jt(t.words),this.text="",this.chosen=null,this.
layer=0,this.head=0,this.settings=O(this.sizes),this.lesson="",this.progress=new Map,this.past=[],this.losses=new Map,this.tokens=[],this.dropped=0,this.before=
e.run([this.tokenizer.begin]),this.after=this.before,this.took=0,this.computed={text:"",settings:""}}compute(){let t=W(this.settings);if(this.tokens.length&&this.
computed.text===this.text&&this.computed.settings===t)return;let e=performance.now();if(!this.tokens.length||this.computed.text!==this.text){let o=this.tokenizer.
read(this.text);this.tokens=o.slice(0,this.data.context),this.dropped=o.length-this.tokens.length,this.before=this.model.run(this.tokens.map(({id:n})=>n))}this.
after=t?this.model.run(this.before.ids,this.settings):this.before,this.computed={text:this.text,settings:t},this.took=performance.now()-e}get token(){return Math.
min(this.chosen??1/0,this.tokens.length-1)}get headName(){return z(this.layer,this.head)}get changed(){return W(this.settings)!==""}switch(t){let e=lt(this.settings);
t(e),W(e)!==W(this.settings)&&(this.past.push(this.settings),this.past.length>To&&this.past.shift(),this.settings=e)}undo(){this.settings=this.past.pop()??this.
settings}get hash(){let t=new URLSearchParams({text:this.text,head:this.headName,...ue(this.settings)});return this.chosen!==null&&t.set("token",String(this.chosen)),
this.lesson&&t.set("lesson",this.lesson),this.progress.size&&t.set("done",[...this.progress].map(([e,o])=>`${e}:${o}`).join(",")),`#${t}`}restore(t){let e=Object.
fromEntries(new URLSearchParams(t.replace(/^#/,"")));e.text!==void 0&&(this.text=e.text);let o=Number(e.token);this.chosen=e.token&&Number.isInteger(o)&&o>=0?o:
null;let n=D(e.head??"",this.sizes);n&&([this.layer,this.head]=n),this.settings=ls(e,this.sizes),this.lesson=e.lesson??"",this.progress.clear();for(let a of(e.done??
"").split(",")){let[,r,i]=/^([a-z]+):(\d{1,2})$/.exec(a)??[];r&&this.progress.set(r,Number(i))}}run(t){return this[t]}word(t){return this.data.words[this.tokens[t].
id]}probability(t,e,o=this.token){let n=o*this.sizes.words;return e.map(r=>this.tokenizer.ids.get(r)??-1).reduce((r,i)=>r+(this.run(t).probabilities[n+i]??0),0)}row(t,e=this.
headName,o=this.token){let[n,a]=D(e,this.sizes)??[0,0],r=this.tokens.length;return this.run(t).layers[n].weights[a].subarray(o*r,o*r+o+1)}guesses(t){return Ve(this.
run(t))}get changedGuesses(){let[t,e]=[this.guesses("before"),this.guesses("after")];return t.flatMap((o,n)=>o===e[n]?[]:[n])}get round(){let t=this.before.ids;
for(let e=2;2*e<t.length;e+=1)if(t.slice(1+e).every((o,n)=>o===t[1+n]))return 1+e;return 0}copied(t){let{round:e}=this,o=e?this.guesses(t).slice(e,-1):[];return o.
length?o.filter((n,a)=>n===this.before.ids[e+a+1]).length/o.length:NaN}loss(t){return _t(this.run(t))}get off(){return ds(this.settings)}get changedHeads(){return cs(
this.settings)}get cacheBytes(){return $t(this.settings,this.sizes)}lossGrowth(t=this.settings){let[e,o]=[this.losses.get(""),this.losses.get(W(t))];return e===
void 0||o===void 0?null:o/e-1}difference(t,e=this.token){let o=this.sizes.heads*this.sizes.headDim,[n,a]=[this.before.layers[t].outputs,this.after.layers[t].outputs],
[r,i]=[0,0];for(let h=e*o;h<(e+1)*o;h+=1)r+=(a[h]-n[h])**2,i+=n[h]**2;return Math.sqrt(r/i)}};var As={uniform:"all words equally",previous:"previous word",first:"first word"},Jt=class{constructor(t,e,o=n=>`Layer ${n}`){this.layers=t,this.title=o,this.handlers=
e,this.cells=t.map((r,i)=>r.map((h,c)=>this.cell(h,i,c))),this.bars=t.map((r,i)=>this.bar(i,r.length)),this.pattern=l("select",{"aria-label":"where the chosen h\
ead looks"}),this.pattern.append(l("option",{value:""},"as it was trained"),...bt.map(r=>l("option",{value:r},As[r]))),this.pattern.addEventListener("change",()=>{
let r=bt.find(i=>i===this.pattern.value)??null;e.pattern?.(this.at[0],this.at[1],r)}),this.patternName=l("span",{});let n=l("div",{class:"choice detail"},l("lab\
el",{},this.patternName,this.pattern));n.append(T("pattern by hand"));let a=t.map((r,i)=>{let h=l("div",{class:"switchrow"},...this.cells[i].map(({box:c})=>c));
return h.style.setProperty("--heads",String(r.length)),l("div",{class:"switchlayer"},this.bars[i].box,h)});this.box=l("div",{class:"switches"},...a,e.pattern?n:
null),this.kinds=Ao(t.flat()),this.at=[0,0]}cell({name:t,shown:e,kind:o,label:n},a,r){let i=l("span",{class:"dot"});o&&(i.style.backgroundColor=ee(o));let h=l("\
button",{type:"button",class:"headname","data-head":t,onclick:()=>this.handlers.select(a,r)},l("b",{},i,e??t),o?l("small",{},n??o):null),c=l("input",{type:"chec\
kbox","aria-label":`${t} on`,"data-switch":t});c.addEventListener("change",()=>this.handlers.scale(a,r,c.checked?1:0));let u=l("input",{type:"range",min:0,max:1,
step:.05,"aria-label":`strength of ${t}`,"data-scale":t,oninput:()=>{d.textContent=H(Number(u.value)),this.handlers.scale(a,r,Number(u.value))}}),d=l("span",{class:"\
strength"});return{box:l("div",{class:"switch"},l("div",{class:"switchtop"},h,c),u,d),choose:h,on:c,slider:u,value:d}}bar(t,e){let o=l("input",{type:"checkbox",
"data-merge":t});o.addEventListener("change",()=>this.handlers.merge?.(t,o.checked));let n=l("select",{"data-share":t});for(let i of de(e))n.append(l("option",{
value:i},String(i)));n.addEventListener("change",()=>this.handlers.share?.(t,Number(n.value)));let a=t===0;return{box:l("div",{class:"layerbar"},l("b",{},this.title(
t)),this.handlers.merge?l("span",{class:"toggle"},l("label",{},o,l("span",{},"one head")),a?T("one head"):null):null,this.handlers.share?l("span",{class:"choice"},
l("label",{},l("span",{},"keys/values"),n),a?T("keys/values"):null):null),merge:o,share:n}}update(t,e,o){this.at=[e,o],this.cells.forEach((n,a)=>n.forEach(({box:r,
choose:i,on:h,slider:c,value:u},d)=>{let{scale:p,pattern:m}=t[a].heads[d];h.checked=p>0,c.value=String(p),u.textContent=m?As[m]:H(p),r.classList.toggle("isoff",
p===0),r.classList.toggle("changed",p!==1||m!==null),i.setAttribute("aria-pressed",String(a===e&&d===o))})),this.bars.forEach(({merge:n,share:a},r)=>{n.checked=
t[r].merged,a.value=String(t[r].kvHeads)}),this.pattern.value=t[e].heads[o].pattern??"",this.pattern.disabled=t[e].merged,this.patternName.textContent=`${this.layers[e][o].
name} looks`}};function Ao(s){let t=new Map;for(let n of s)n.kind&&!t.has(n.kind)&&t.set(n.kind,n);let e=[...t].map(([n,{meaning:a}])=>{let r=l("span",{class:"d\
ot"});return r.style.backgroundColor=ee(n),l("span",{class:"kindkey"},r,n," ",T(n,a))}),o=l("span",{class:"dim"},"Kinds ",T("kind"));return e.length?l("p",{class:"\
kindkeys"},o,...e):null}function Es(s,t){let e=Et(s),o=0;return Object.fromEntries(t.map(([n,a])=>[n,e.slice(o,o+=a)]))}var Eo=250,So=100,Lo="<now> <town> the keys that the man near the door sees",Ee=class{constructor(t){this.values=new Map(t.map(([,e])=>[e,l("dd",{"data-fact":e})])),
this.box=l("dl",{class:"facts"});for(let[e,o]of t)this.box.append(l("div",{},l("dt",{},e," ",T(o)),this.values.get(o)))}show(t,e){let o=this.values.get(t);o&&(o.
textContent=e,o.parentElement?.toggleAttribute("hidden",e===null))}};function Co({kinds:s,meanings:t},e){let o=St(s[e]).map(n=>je(`${n.name}: ${n.meaning}`));return t[e]??
o.join(" ")}var Se=class{constructor(t){this.session=t;let e=()=>this.changed(),o=r=>{t.chosen=r,e()};this.lessons=new Dt(t,e),this.input=new Pt(t,e),this.predictions=
new Vt(t,o),this.maps=new Gt(t,o),this.computation=new It(t,r=>{t.layer=r,e()}),this.switches=this.makeSwitches(),this.undo=l("button",{type:"button",id:"undo",
onclick:()=>this.act(()=>t.undo())},"Undo");let n=()=>this.act(()=>t.switch(r=>r.splice(0,r.length,...O(t.sizes))));this.reset=l("button",{type:"button",id:"res\
et",onclick:n},"Reset"),this.facts=new Ee([["heads on","head"],[`mean loss over ${t.data.samples.length} sample texts`,"mean loss"],["KV cache","KV cache"],["wo\
rds copied","words copied"]]);let a=l("section",{class:"heads","aria-label":"heads"},l("div",{class:"inputtop"},l("h2",{},"Heads"),T("head"),this.undo,this.reset),
l("p",{class:"dim caption"},"Click a head's name to see where it looks. Untick it to switch it off, or scale its output with the slider. ",T("switch")),this.switches.
box,this.switches.kinds,this.facts.box);_("main").replaceChildren(this.lessons.box,this.lessons.bar,this.input.box,l("div",{class:"two"},a,this.predictions.box),
this.maps.box,this.computation.box),this.samples=new Qt(t,()=>this.measured()),this.addressTimer=0,this.measureTimer=0,this.frame=0}makeSwitches(){let{session:t}=this,
{layers:e,heads:o}=t.sizes,n=Array.from({length:e},(r,i)=>Array.from({length:o},(h,c)=>({name:z(i,c),kind:t.card.kinds[z(i,c)],meaning:Co(t.card,z(i,c))}))),a=r=>this.
act(()=>t.switch(r));return new Jt(n,{select:(r,i)=>this.act(()=>{t.layer=r,t.head=i}),scale:(r,i,h)=>a(c=>{c[r].heads[i].scale=h}),pattern:(r,i,h)=>a(c=>{c[r].
heads[i].pattern=h}),merge:(r,i)=>a(h=>{h[r].merged=i}),share:(r,i)=>a(h=>{h[r].kvHeads=i})})}act(t){t(),this.changed()}changed(){delete document.body.dataset.ready,
!this.frame&&(this.frame=requestAnimationFrame(()=>{this.frame=0,this.update()}))}update(){let{session:t}=this;t.compute(),this.input.update(),this.switches.update(
t.settings,t.layer,t.head),this.undo.disabled=!t.past.length,this.reset.disabled=!t.changed,this.predictions.update(),this.maps.update(),this.computation.update(),
this.lessons.update(),this.drawFacts(),clearTimeout(this.addressTimer),this.addressTimer=window.setTimeout(()=>this.writeAddress(),Eo),clearTimeout(this.measureTimer),
this.measureTimer=window.setTimeout(()=>this.samples.measure(),So),document.body.dataset.took=t.took.toFixed(1),document.body.dataset.ready="play"}measured(){this.
drawFacts(),this.lessons.update()}writeAddress(){try{history.replaceState(null,"",this.session.hash)}catch{}}drawFacts(){let{session:t}=this,e=t.sizes.layers*t.
sizes.heads,o=t.copied("after");this.facts.show("head",`${e-t.off.length} of ${e}`),this.facts.show("mean loss",this.lossText()),this.facts.show("KV cache",`${t.
cacheBytes} bytes per word`),this.facts.show("words copied",Number.isNaN(o)?null:Z(o,3))}lossText(){let{session:t}=this,[e,o]=[t.losses.get(""),t.lossGrowth()];
if(e===void 0)return"measuring…";if(o===null)return`${N(e)} → measuring…`;if(!t.changed)return N(e);let n=o>=0?"+":"−";return`${N(e)} → ${N(e*(1+o))} \
(${n}${Z(Math.abs(o))})`}onKey(t){t.key.toLowerCase()!=="z"||!(t.ctrlKey||t.metaKey)||t.shiftKey||U(t,"textarea, input[type=text]")||(t.preventDefault(),this.act(
()=>this.session.undo()))}resize(){this.maps.resize(),this.computation.draw()}};function qo(s){let{layers:t,heads:e,width:o,headDim:n,words:a}=s.sizes,r=[[Ie(s.
parameters),"parameters","parameters"],[`${pt(t,"layer")} × ${pt(e,"head")}`,`d_model ${o}, d_k ${n}`,"head"],[String(a),"words","the language"]];_("card").replaceChildren(
...r.map(([i,h,c])=>l("span",{},l("b",{},i),` ${h} `,T(c)))),_("foot").replaceChildren(l("p",{},`multihead ${s.version}. The model runs in this page, which send\
s nothing. The URL saves words and switches. Ctrl+Z undoes a switch.`))}function Ss(s){document.documentElement.dataset.theme=s,Be()}async function No(){let s=window.
matchMedia("(prefers-color-scheme: dark)");if(Ss(s.matches?"dark":"light"),typeof DecompressionStream>"u"){_("main").append(l("p",{class:"lead"},"This browser i\
s too old for this page. Use Chrome 111, Safari 16.4, Firefox 113 or a newer one."));return}let t=await ze();_e(t.charts),qo(t);let e=new Yt(t,new zt(t.sizes,Es(
await X(0),t.layout)));e.text=Lo;let o=e.card.agreement.match(/\d+/g)?.map(Number);o&&([e.layer,e.head]=o),location.hash.length>1&&e.restore(location.hash);let n=new Se(
e),a=h=>{Ss(h),n.update()},r=()=>document.documentElement.dataset.theme==="dark"?"light":"dark";_("tools").append(ts(()=>n.writeAddress())??""),_("tools").append(
l("button",{type:"button",id:"theme",onclick:()=>a(r())},"Light / dark")),s.addEventListener("change",()=>a(s.matches?"dark":"light")),window.addEventListener("\
hashchange",()=>{location.hash!==e.hash&&n.act(()=>e.restore(location.hash))}),window.addEventListener("keydown",h=>n.onKey(h));let i=0;window.addEventListener(
"resize",()=>{clearTimeout(i),i=window.setTimeout(()=>n.resize(),80)}),n.update(),Object.defineProperty(window,"multihead",{value:Object.freeze({session:e,page:n})})}
No();})();
