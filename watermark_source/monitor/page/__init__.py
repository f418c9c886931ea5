"""The status page as HTML and SVG: ``document`` makes it, of what modules have decided that the terminal uses, too.

``verdict`` and ``facts`` have the first sentences, ``lanes`` the rows of the picture, ``axis`` the place of a moment.
"""
