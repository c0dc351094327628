"""What stays is fitted to what the original did, on calibration text."""
