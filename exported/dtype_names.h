// PyTorch's names of dtypes, layouts and memory formats.
#pragma once

#include <c10/core/Layout.h>
#include <c10/core/MemoryFormat.h>
#include <c10/core/ScalarType.h>

#include <optional>
#include <string>

namespace gannet::exported {

// "float32"; nullopt for names that are unknown or not allowed in a graph.
std::optional<at::ScalarType> dtype_named(const std::string& name);
std::string name_of(at::ScalarType dtype);
std::optional<at::Layout> layout_named(const std::string& name);
std::optional<at::MemoryFormat> memory_format_named(const std::string& name);

}  // namespace gannet::exported
