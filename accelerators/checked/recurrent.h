// LSTM and GRU cells. On devices other than the CPU, LibTorch calls each cell as one fused operator
// that the CPU does not have.
#pragma once

namespace gannet::accelerators::checked {

void register_recurrent_cells();

}  // namespace gannet::accelerators::checked
