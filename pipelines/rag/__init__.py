"""RAG: training of retriever and generator end to end (Lewis et al. 2020)."""
