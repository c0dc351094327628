"""What each head does, by evidence and against chance."""
