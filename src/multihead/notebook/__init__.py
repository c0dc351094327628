"""What public objects show in a notebook: small pieces of HTML that need nothing else."""
