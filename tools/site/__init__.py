"""What makes docs/ a site: the settings of Sphinx, what `/` leads to, and a check of what was built (`__main__`)."""
