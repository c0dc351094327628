import torch, pytest, jaxtyping
import multihead as mh
from multihead import mask
@pytest.mark.parametrize("backend",["eager","aot_eager"])
def test_c(backend):
    a=mh.MultiHeadAttention(12,3); x=torch.randn(2,5,12)
    f=torch.compile(a,fullgraph=True,backend=backend)
    torch.testing.assert_close(f(x,mask=mask.causal()), a(x,mask=mask.causal()))
def test_checks():
    from multihead.layer.init import XavierPerHead
    from multihead.layer.routes import attend
    with pytest.raises(jaxtyping.TypeCheckError): attend(3)
def test_own_error_first():
    with pytest.raises(mh.MultiheadError): mh.MultiHeadAttention(10,3)
    a=mh.MultiHeadAttention(12,3)
    with pytest.raises(mh.MultiheadError): a(torch.ones(2,5,12,dtype=torch.long))
def test_export():
    a=mh.MultiHeadAttention(12,3).eval(); x=torch.randn(2,5,12)
    class M(torch.nn.Module):
        def __init__(s): super().__init__(); s.a=a
        def forward(s,x): return s.a(x,mask=mask.causal())
    ep=torch.export.export(M(),(x,)); torch.testing.assert_close(ep.module()(x),a(x,mask=mask.causal()))
