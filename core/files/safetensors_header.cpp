#include "files/safetensors_header.h"

#include <gannet/error.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/format.h"

namespace gannet::safetensors {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kMetadata = "__metadata__";

constexpr std::pair<const char*, c10::ScalarType> kDtypes[] = {
    {"F64", c10::kDouble}, {"F32", c10::kFloat}, {"F16", c10::kHalf}, {"BF16", c10::kBFloat16}, {"I64", c10::kLong},
    {"I32", c10::kInt},    {"I16", c10::kShort}, {"I8", c10::kChar},  {"U8", c10::kByte},       {"BOOL", c10::kBool},
};

// Dtypes of the format that Gannet does not have: unsigned integers, a complex type, and codes of
// quantised weights, whose scales are in other tensors.
constexpr const char* kOtherDtypes[] = {"F8_E4M3", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "F6_E2M3",
                                        "F6_E3M2", "F4",      "U16",     "U32",         "U64",         "C64"};

[[noreturn]] void corrupt(const std::string& path, const std::string& what) {
  throw Error(ErrorCode::kCorrupt, formatted("{}: {}", path, what),
              "the file is damaged or not in the safetensors format: fetch or save it again");
}

// nlohmann keeps the last of two equal keys. The format forbids equal keys, so the parser's events
// are watched for them.
Json parse_without_duplicates(std::string_view text, const std::string& path) {
  std::vector<std::set<std::string>> open;
  auto watch = [&](int, Json::parse_event_t event, Json& value) {
    if (event == Json::parse_event_t::object_start) open.emplace_back();
    if (event == Json::parse_event_t::object_end) open.pop_back();
    if (event == Json::parse_event_t::key && !open.back().insert(value.get<std::string>()).second)
      corrupt(path, formatted("the header names '{}' twice", value.get<std::string>()));
    return true;
  };
  try {
    return Json::parse(text, watch);
  } catch (const Json::exception& error) {
    corrupt(path, std::string("the header is not JSON: ") + error.what());
  }
}

// Parses a list of unsigned integers: a shape or a pair of offsets.
std::vector<uint64_t> unsigned_list(const Json& value, const std::string& path, const std::string& where) {
  std::vector<uint64_t> numbers;
  bool fits = value.is_array();
  if (fits)
    for (const auto& number : value) {
      fits = fits && number.is_number_unsigned() && number.get<uint64_t>() <= INT64_MAX;
      if (fits) numbers.push_back(number.get<uint64_t>());
    }
  if (!fits) corrupt(path, formatted("{} is not a list of sizes: {}", where, value.dump().substr(0, 80)));
  return numbers;
}

Entry parse_entry(const std::string& name, const Json& value, uint64_t data_bytes, const std::string& path) {
  const std::string who = formatted("tensor '{}'", name);
  for (const char* key : {"dtype", "shape", "data_offsets"})
    if (!value.is_object() || !value.contains(key)) corrupt(path, formatted("{} has no {}", who, key));
  if (value.size() != 3) corrupt(path, formatted("{} has keys besides dtype, shape and data_offsets", who));

  const auto known =
      std::find_if(std::begin(kDtypes), std::end(kDtypes), [&](const auto& dtype) { return value["dtype"] == dtype.first; });
  for (const char* other : kOtherDtypes)
    if (value["dtype"] == other)
      throw Error(ErrorCode::kUnsupported,
                  formatted("{}: {} has dtype {}, which Gannet does not have; it has F64 F32 F16 BF16 I64 I32 I16 I8 U8 BOOL",
                            path, who, other),
                  *other == 'F'
                      ? "dequantise first: in the library that wrote it, multiply by its scales, and save as BF16 or F32"
                      : "convert it in the library that wrote it, and save it again");
  if (known == std::end(kDtypes))
    corrupt(path, formatted("{} has dtype {}, known are F64 F32 F16 BF16 I64 I32 I16 I8 U8 BOOL", who,
                            value["dtype"].dump().substr(0, 80)));

  const auto shape = unsigned_list(value["shape"], path, formatted("{}: shape", who));
  const auto offsets = unsigned_list(value["data_offsets"], path, formatted("{}: data_offsets", who));
  if (offsets.size() != 2 || offsets[0] > offsets[1])
    corrupt(path, formatted("{}: data_offsets is not [begin, end]: {}", who, value["data_offsets"].dump().substr(0, 80)));
  if (offsets[1] > data_bytes)
    corrupt(path, formatted("{} ends at byte {} of the data, the file has {}", who, offsets[1], data_bytes));

  uint64_t bytes = c10::elementSize(known->second);
  for (uint64_t size : shape)
    if (__builtin_mul_overflow(bytes, size, &bytes))
      corrupt(path, formatted("{}: its shape is larger than any memory: {}", who, value["shape"].dump().substr(0, 80)));
  if (bytes != offsets[1] - offsets[0])
    corrupt(path, formatted("{} of shape {} and dtype {} takes {} bytes, its data_offsets span {}", who,
                            value["shape"].dump().substr(0, 80), known->first, bytes, offsets[1] - offsets[0]));
  return {name, known->second, std::vector<int64_t>(shape.begin(), shape.end()), offsets[0], offsets[1]};
}

}  // namespace

const char* dtype_name(c10::ScalarType dtype) {
  for (const auto& known : kDtypes)
    if (known.second == dtype) return known.first;
  return nullptr;
}

std::optional<c10::ScalarType> dtype_of(std::string_view name) {
  for (const auto& known : kDtypes)
    if (known.first == name) return known.second;
  return std::nullopt;
}

Header parse_header(std::string_view json, uint64_t data_bytes, const std::string& path) {
  const Json document = parse_without_duplicates(json, path);
  if (!document.is_object()) corrupt(path, "the header is not a JSON object");
  Header header;
  for (const auto& [name, value] : document.items()) {
    if (name != kMetadata) {
      header.entries.push_back(parse_entry(name, value, data_bytes, path));
      continue;
    }
    if (!value.is_object()) corrupt(path, "__metadata__ is not a dictionary of texts");
    for (const auto& [key, text] : value.items()) {
      if (!text.is_string()) corrupt(path, formatted("__metadata__ '{}' is not a text", key));
      header.metadata[key] = text.get<std::string>();
    }
  }
  std::sort(header.entries.begin(), header.entries.end(),
            [](const Entry& a, const Entry& b) { return std::pair(a.begin, a.end) < std::pair(b.begin, b.end); });
  // The format requires that tensors have no overlaps or gaps: an overlap would be one tensor
  // under two names, and a gap could hide anything.
  uint64_t covered = 0;
  for (const Entry& entry : header.entries) {
    if (entry.begin != covered)
      corrupt(path, formatted("tensor '{}' begins at byte {} of the data, the one before it ends at {}{}", entry.name,
                              entry.begin, covered, entry.begin < covered ? ": they overlap" : ": a gap"));
    covered = entry.end;
  }
  if (covered != data_bytes)
    corrupt(path, formatted("its tensors end at byte {} of the data, the file has {}", covered, data_bytes));
  return header;
}

std::string format_header(const Header& header) try {
  Json document = Json::object();
  if (!header.metadata.empty()) document[kMetadata] = header.metadata;
  for (const Entry& entry : header.entries) {
    if (entry.name == kMetadata)
      throw Error(ErrorCode::kArgument,
                  "a tensor named '__metadata__' cannot be in a safetensors file: the name is the format's own",
                  "rename the parameter");
    document[entry.name] = {
        {"dtype", dtype_name(entry.dtype)}, {"shape", entry.shape}, {"data_offsets", {entry.begin, entry.end}}};
  }
  std::string text = document.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return text;
} catch (const Json::exception& error) {
  throw Error(ErrorCode::kArgument, std::string("the tensors' names cannot be written as JSON: ") + error.what(),
              "names must be UTF-8");
}

}  // namespace gannet::safetensors
