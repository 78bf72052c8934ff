// A call's numbers, in the form read by an optimizer with TAKES_DEVICE_NUMBERS
// (gannet_update_args::device_numbers).
//
//   const std::vector<double> numbers = numbers_of(args);   // to be copied to the memory that holds the arrays
//   give_numbers(args, copied, numbers.size());             // replaces the host's numbers
#pragma once

#include <gannet/abi.h>

#include <cmath>
#include <cstdint>
#include <vector>

namespace gannet {

// Returns the numbers in the order of gannet_device_number.
inline std::vector<double> numbers_of(const gannet_update_args& args, bool is_skipped = false) {
  std::vector<double> numbers = {is_skipped ? 1.0 : 0.0, args.grad_scale, static_cast<double>(args.step)};
  numbers.insert(numbers.end(), args.hyper, args.hyper + args.hyper_count);
  return numbers;
}

// Sets the device numbers and clears the host's numbers, so that a plugin cannot read a number that
// a replayed launch would keep forever.
inline void give_numbers(gannet_update_args& args, const double* numbers, uint64_t count) {
  args.device_numbers = numbers;
  args.device_number_count = count;
  args.grad_scale = args.loss = NAN;
  args.step = 0;
  args.hyper = nullptr;
  args.hyper_count = 0;
}

}  // namespace gannet
