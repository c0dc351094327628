"""SHOW: one HTML file that tells what every head does."""
