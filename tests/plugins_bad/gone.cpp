void gannet_gone() {}
