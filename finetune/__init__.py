"""Training: from collected traces to adapters, classifiers, encoders and segmenters that `localmem` loads.

Knows the file formats of `localmem`'s parts; knows nothing of the store, the server or the command line.
"""
