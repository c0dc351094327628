"""Whether heads point along the dependencies of parsed text."""
