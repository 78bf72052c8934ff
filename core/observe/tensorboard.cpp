// Writes TensorBoard's event files: TFRecord frames around Event messages in protobuf's wire
// format. Only a few fields are needed.
#include <unistd.h>

#include <atomic>
#include <cctype>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "observe/crc32c.h"
#include "observe/output.h"
#include "observe/writers.h"

namespace gannet::observe {
namespace {

// ---- protobuf: each field is a tag (number << 3 | wire type), followed by its value
void put_varint(std::string& out, uint64_t number) {
  for (; number >= 0x80; number >>= 7) out += static_cast<char>(number | 0x80);
  out += static_cast<char>(number);
}

template <class Number>
void put_fixed(std::string& out, Number number) {  // little-endian, like all supported machines
  char bytes[sizeof(number)];
  std::memcpy(bytes, &number, sizeof(number));
  out.append(bytes, sizeof(number));
}

// The wire types are 0 (varint), 1 (fixed 64 bits), 2 (length-delimited) and 5 (fixed 32 bits).
void put_double(std::string& out, int field, double number) {
  put_varint(out, static_cast<uint64_t>(field) << 3 | 1);
  put_fixed(out, number);
}

void put_float(std::string& out, int field, float number) {
  put_varint(out, static_cast<uint64_t>(field) << 3 | 5);
  put_fixed(out, number);
}

void put_int(std::string& out, int field, int64_t number) {
  put_varint(out, static_cast<uint64_t>(field) << 3);
  put_varint(out, static_cast<uint64_t>(number));
}

void put_bytes(std::string& out, int field, std::string_view bytes) {
  put_varint(out, static_cast<uint64_t>(field) << 3 | 2);
  put_varint(out, bytes.size());
  out += bytes;
}

double wall_time() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

// The fields of an Event are wall_time (1), step (2), file_version (3) and summary (5). The first
// event of a file names the version of the format.
std::string version_event() {
  std::string event;
  put_double(event, 1, wall_time());
  put_bytes(event, 3, "brain.Event:2");
  return event;
}

// A Summary has the field value (1), which is a list. A Value has the fields tag (1) and
// simple_value (2).
std::string scalar_event(const std::string& tag, double value, int64_t step) {
  std::string scalar, summary, event;
  put_bytes(scalar, 1, tag);
  put_float(scalar, 2, static_cast<float>(value));
  put_bytes(summary, 1, scalar);
  put_double(event, 1, wall_time());
  put_int(event, 2, step);
  put_bytes(event, 5, summary);
  return event;
}

// ---- TFRecord: length, its checksum, the bytes, their checksum. The checksums are masked, so that
// checksums of data that itself contains checksums are still reliable.
uint32_t masked_crc(std::string_view bytes) {
  const uint32_t crc = crc32c(bytes);
  // The rotation and the constant are those of TensorFlow (tensorflow/core/lib/hash/crc32c.h).
  return ((crc >> 15) | (crc << 17)) + 0xA282EAD8;
}

std::string record(const std::string& event) {
  std::string framed;
  put_fixed(framed, static_cast<uint64_t>(event.size()));
  put_fixed(framed, masked_crc(framed));
  framed += event;
  put_fixed(framed, masked_crc(event));
  return framed;
}

// Replaces characters that TensorBoard does not accept in a tag by '_'.
std::string clean(std::string tag) {
  for (char& letter : tag)
    if (!std::isalnum(static_cast<unsigned char>(letter)) && !std::strchr("-/_.", letter)) letter = '_';
  return tag;
}

class TensorboardEvents : public Writer {
 public:
  explicit TensorboardEvents(std::string folder) : output_({.who = "tensorboard", .is_text = false}), folder_(std::move(folder)) {
    open();
  }

  void step(const Step& step, double) override { add(scalars_of(step), step.samples); }
  void values(const LateValues& late, double) override { add(scalars_of(late), late.samples); }
  void flush() override { output_.flush(); }

 private:
  void add(const std::vector<std::pair<std::string, double>>& scalars, int64_t samples) {
    if (output_.failures() != failures_) open();
    for (const auto& [tag, value] : scalars) output_.add(file_, record(scalar_event(clean(tag), value, samples)));
  }
  // Opens a new file for each process, and after each failed write.
  void open() {
    static std::atomic<int> files{0};
    failures_ = output_.failures();
    char host[256] = "localhost", name[400];
    ::gethostname(host, sizeof(host) - 1);
    std::snprintf(name, sizeof(name), "/events.out.tfevents.%010lld.%s.%d.%d", static_cast<long long>(wall_time()), host,
                  static_cast<int>(::getpid()), files.fetch_add(1));
    file_ = output_.open(folder_ + name, record(version_event()));
  }

  Output output_;
  std::string folder_;
  size_t file_ = 0;
  int64_t failures_ = 0;
};

}  // namespace

std::unique_ptr<Writer> tensorboard_events(const std::string& folder) { return std::make_unique<TensorboardEvents>(folder); }

}  // namespace gannet::observe
