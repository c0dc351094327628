"""Cut heads: plan what goes, shrink the model, fit what stays, check what it cost."""
