#include "exchange/export_pt.h"

#include "exchange/pt_writer.h"

namespace gannet::exchange {
namespace {

void write_pt(const std::string& path, const std::vector<checkpoint::ExportItem>& items, const checkpoint::EachTensor& each) {
  std::vector<PtEntry> entries;
  for (const auto& item : items) entries.push_back({{item.name}, item.dtype, item.source->shape});
  PtWriter writer(path, std::move(entries));
  each([&](const at::Tensor& tensor) { writer.write(tensor); });
  writer.finish();
}

}  // namespace

const checkpoint::ExportFormat& pt_format() {
  static const checkpoint::ExportFormat& format = *new checkpoint::ExportFormat{"pytorch_model", ".bin", write_pt};
  return format;
}

}  // namespace gannet::exchange
