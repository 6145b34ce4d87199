"""`gristmill dash`: a live page over run folders; it reads them and never touches the run."""
