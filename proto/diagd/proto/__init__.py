"""The messages between diagd's parts, and the code generated from them."""
