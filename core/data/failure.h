// Sentences about what failed on the way from samples to a batch.
#pragma once

#include <gannet/dataset.h>

#include <string>

namespace gannet::loading {

std::string list_samples(Indices samples);  // "sample 3", "samples 3, 9, 12"
std::string type_name(const std::type_info& type);

// In a catch block: throws "<where>: <what happened>", with the code of the current exception where it has one; it is nested
// inside.
[[noreturn]] void rethrow_with(const std::string& where);

}  // namespace gannet::loading
