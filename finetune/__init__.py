"""Training: from collected traces and labelled data to adapters, classifiers, encoders and segmenters for `localmem`.

Depends on the file formats of localmem's parts and on its factory, and not on the store, the server or the command
line. It is part of a checkout only, not of the wheel.
"""
