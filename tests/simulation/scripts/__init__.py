"""Scripts: one schedule for each known defect, on the production group of a stage.

Each is a function that passes when the statements hold, and raises what names the one that does
not. Its docstring begins with the defect.
"""
