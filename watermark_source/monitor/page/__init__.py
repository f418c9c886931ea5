"""The status page as HTML and SVG. ``document`` has the whole of it; what it draws is decided beside this package.

``verdict`` says what is said first, ``lanes`` what is in a row of the picture, ``axis`` where a moment is: the terminal
draws the same.
"""
