// LibTorch gives a device of its own the cells of LSTM and GRU as one operator, which the CPU does not have.
#pragma once

namespace gannet::accelerators::checked {

void register_recurrent_cells();

}  // namespace gannet::accelerators::checked
