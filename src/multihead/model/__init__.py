"""SEE: find the heads of any PyTorch model, capture and change them as they pass."""
