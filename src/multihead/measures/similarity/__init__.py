"""Which heads write or attend to the same."""
