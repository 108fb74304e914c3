"""What a board says about its heat, clocks and load."""
