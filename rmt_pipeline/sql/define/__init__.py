"""What CREATE and ALTER define, checked."""
