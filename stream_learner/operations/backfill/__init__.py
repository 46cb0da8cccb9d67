"""Another model from the past: joiners and a learner under another name, from a moment on."""
