"""What people press and move in a live view: buttons, sliders, and the parts around them."""
