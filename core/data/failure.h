// Error messages for failures between samples and batch.
#pragma once

#include <gannet/dataset.h>

#include <string>

namespace gannet::loading {

std::string list_samples(Indices samples);  // "sample 3", "samples 3, 9, 12"
std::string type_name(const std::type_info& type);

// Call it in a catch block. Throws "<where>: <what happened>", with the current exception's code if
// it has one, and with that exception nested.
[[noreturn]] void rethrow_with(const std::string& where);

}  // namespace gannet::loading
