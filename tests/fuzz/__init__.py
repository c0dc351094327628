"""A fuzz of the attention layer: random layers and calls against a dense einsum that shares no code with it.

| file | contents |
|---|---|
| layers.py | a layer as plain data, and the layer it describes |
| masks.py, mask_kinds.py | masks as plain data, built twice: by the package, and as dense tensors |
| dense.py | the oracle: attention as one einsum in float64, and a cache as a list of rows |
| cases.py | a case: one layer and its calls; `case(seed)` draws one |
| scene.py | the tensors of a case: inputs, masks, gates, positions |
| mistakes.py | calls that must be refused |
| answers.py | the same calls by the package and by the oracle |
| run.py, findings.py | runs a case and lists the differences and errors |
| transforms.py | vmap, torch.func.grad and per-sample gradients |
| describe.py | a case in words |
| shrink.py | the simplest case that still fails in the same way |

`python tests/fuzz/report.py 3000` runs the cases of 3,000 seeds and prints the failures by cause, each with the
smallest case that shows it; `python tests/fuzz/report.py --seed 17` runs one.
"""
