"""Save and load cut models: a folder of safetensors and JSON, written completely or not at all, without pickle."""
