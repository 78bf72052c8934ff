#include "convert/export_pt.h"

#include <map>

#include "files/pt_writer.h"

namespace gannet::convert {
namespace {

void write_pt(const std::string& path, const std::vector<checkpoint::ExportItem>& items, const checkpoint::EachTensor& each) {
  std::vector<files::PtEntry> entries;
  std::map<std::string, int64_t> places;
  for (const auto& item : items) {
    places[item.name] = static_cast<int64_t>(entries.size());
    entries.push_back({{item.name}, item.dtype, item.source->shape, item.alias_of.empty() ? -1 : places.at(item.alias_of)});
  }
  files::PtWriter writer(path, std::move(entries));
  each([&](const at::Tensor& tensor) { writer.write(tensor); });
  writer.finish();
}

}  // namespace

const checkpoint::ExportFormat& pt_format() {
  static const checkpoint::ExportFormat& format = *new checkpoint::ExportFormat{"pytorch_model", ".bin", true, write_pt};
  return format;
}

}  // namespace gannet::convert
