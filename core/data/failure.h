// Error messages for failures on the way from samples to a batch.
#pragma once

#include <gannet/dataset.h>

#include <string>

namespace gannet::loading {

std::string list_samples(Indices samples);  // "sample 3", "samples 3, 9, 12"
std::string type_name(const std::type_info& type);

// Call it in a catch block. Throws an Error "<where>: <what happened>" with the code of the current
// exception, or kArgument if that has none. The current exception is nested in it.
[[noreturn]] void rethrow_with(const std::string& where);

}  // namespace gannet::loading
