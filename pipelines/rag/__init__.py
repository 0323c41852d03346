"""RAG: retriever and generator trained end to end from questions and answers (Lewis et al. 2020)."""
