"""Save and load what was cut: a folder of safetensors and JSON, written at once, read without pickle."""
