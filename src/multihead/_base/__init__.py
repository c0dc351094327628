"""What every folder uses and no folder owns: shapes, colours, small pieces of HTML."""
