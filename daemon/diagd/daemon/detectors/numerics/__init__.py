"""What gradients, updates and learning rates say: pure rules over series, told apart from healthy runs like them."""
