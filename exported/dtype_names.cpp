#include "dtype_names.h"

#include <array>
#include <utility>

namespace gannet::exported {
namespace {

constexpr std::array<std::pair<const char*, at::ScalarType>, 12> kDtypes = {{{"float32", at::ScalarType::Float},
                                                                             {"bfloat16", at::ScalarType::BFloat16},
                                                                             {"float16", at::ScalarType::Half},
                                                                             {"float64", at::ScalarType::Double},
                                                                             {"int64", at::ScalarType::Long},
                                                                             {"int32", at::ScalarType::Int},
                                                                             {"int16", at::ScalarType::Short},
                                                                             {"int8", at::ScalarType::Char},
                                                                             {"uint8", at::ScalarType::Byte},
                                                                             {"bool", at::ScalarType::Bool},
                                                                             {"complex64", at::ScalarType::ComplexFloat},
                                                                             {"complex128", at::ScalarType::ComplexDouble}}};
constexpr std::array<std::pair<const char*, at::MemoryFormat>, 4> kFormats = {
    {{"contiguous_format", at::MemoryFormat::Contiguous},
     {"preserve_format", at::MemoryFormat::Preserve},
     {"channels_last", at::MemoryFormat::ChannelsLast},
     {"channels_last_3d", at::MemoryFormat::ChannelsLast3d}}};

}  // namespace

std::optional<at::ScalarType> dtype_named(const std::string& name) {
  for (const auto& [known, dtype] : kDtypes)
    if (name == known) return dtype;
  return std::nullopt;
}

std::string name_of(at::ScalarType dtype) {
  for (const auto& [name, known] : kDtypes)
    if (dtype == known) return name;
  return c10::toString(dtype);
}

std::optional<at::Layout> layout_named(const std::string& name) {
  return name == "strided" ? std::optional(at::kStrided) : std::nullopt;
}

std::optional<at::MemoryFormat> memory_format_named(const std::string& name) {
  for (const auto& [known, format] : kFormats)
    if (name == known) return format;
  return std::nullopt;
}

}  // namespace gannet::exported
