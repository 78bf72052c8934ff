// Odd .pt files: each is imported or refused with an Error. None may abort, hang, run code, or write more than a file can hold.
// Below: those made by hand, and mutants of real files under a seed (GANNET_MUTANTS says how many; 240).
#include <gannet/checkpoint.h>
#include <sys/stat.h>
#include <torch/nn/module.h>

#include <cstdlib>
#include <random>

#include "checkpoint/checkpoint.h"
#include "checkpoint/export.h"
#include "convert/export_pt.h"
#include "convert/import_weights.h"
#include "files/hand.h"
#include "files/pt_file.h"

namespace gannet::files {
namespace {

using namespace hand;
using namespace std::string_literals;

const std::string kValues = le(1.0f) + le(2.0f) + le(3.0f) + le(4.0f);

std::string with(const Text& root) { return file(root, {{"0", kValues}}); }
std::string one(const TensorText& t) { return with(dict({{"w", tensor(t)}})); }
std::string named(const std::string& name) { return with(dict({{name, tensor()}})); }
std::string archive(const std::vector<HandEntry>& entries) { return HandZip{entries}.bytes(); }
std::string legacy(const Text& root) {
  return "\x80\x02\x8a\x0al\xfc\x9c\x46\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.\x80\x02}(X\x0d\0\0\0little_endian\x88u."s + "\x80\x02" +
         root + ".";
}

enum class Wanted { kImported, kRefused, kEither };
struct Case {
  std::string name, bytes;
  Wanted wanted = Wanted::kRefused;
};

std::vector<Case> cases() {
  const int64_t vast = int64_t{1} << 40, most = INT64_MAX;
  Entries many_expanded, many_alike, many_names;
  for (int i = 0; i < 300; ++i)
    many_expanded.push_back({"t" + std::to_string(i), tensor({.sizes = {100 << 20}, .strides = {0}})});
  for (int i = 0; i < 1000; ++i) many_alike.push_back({"t" + std::to_string(i), tensor()});
  for (int i = 0; i < 20'000; ++i) many_names.push_back({"t" + std::to_string(i), num(i)});
  Text deep = num(1), bomb = tensor();
  for (int i = 0; i < 600; ++i) deep = list({deep});
  // Each level holds the one before it ten times: 10^30 tensors, were it walked.
  Text shared = list({tensor()});
  for (int level = 0; level < 30; ++level) {
    shared += "q" + std::string(1, static_cast<char>(level)) + "0](";
    for (int i = 0; i < 10; ++i) shared += "h" + std::string(1, static_cast<char>(level));
    shared += "e";
  }
  std::vector<int64_t> dimensions(10'000, 1);
  return {
      {"plain", one({}), Wanted::kImported},
      {"no bytes", ""},
      {"one byte", "\x80"},
      {"letters", "not a file of torch.save"},
      {"zeros", std::string(4096, '\0')},
      {"a zip's first bytes alone", "PK\3\4"},
      {"a zip's end alone", "PK\5\6" + std::string(18, '\0')},
      {"an empty archive", archive({})},
      {"an archive without a pickle", archive({{"a/x", "y"}})},
      {"two pickles", archive({{"a/data.pkl", "\x80\x02}."}, {"b/data.pkl", "\x80\x02}."}})},
      {"TorchScript", archive({{"a/data.pkl", "\x80\x02}."}, {"a/constants.pkl", "\x80\x02)."}})},
      {"big-endian", archive({{"a/data.pkl", "\x80\x02}."}, {"a/byteorder", "big"}})},
      {"an unknown byte order", archive({{"a/data.pkl", "\x80\x02}."}, {"a/byteorder", "middle"}})},
      {"a compressed pickle", archive({{.name = "a/data.pkl", .content = "x", .method = 8}})},
      {"an encrypted pickle", archive({{.name = "a/data.pkl", .content = "\x80\x02}.", .flags = 1}})},
      {"a pickle that claims 4 GB", archive({{.name = "a/data.pkl", .content = "\x80\x02}.", .claimed_bytes = 0xfffffff0}})},
      {"a pickle beyond the end", archive({{.name = "a/data.pkl", .content = "\x80\x02}.", .claimed_offset = 0x7fffffff}})},
      {"60,000 entries that are not there", HandZip{{{"a/data.pkl", "\x80\x02}."}}, 60'000}.bytes()},
      {"an entry named ../../x", archive({{"../../x", "y"}, {"a/data.pkl", "\x80\x02}."}})},
      {"an entry that is another in the directory",
       archive({{.name = "a/data.pkl", .content = "\x80\x02}.", .local_name = "b/data.pkl"}})},
      {"a tar archive", std::string(257, 'x') + "ustar" + std::string(300, '\0')},
      {"a pickle of pickle.dump", "\x80\x02}."s},
      {"the old format, cut after its magic", legacy("}").substr(0, 15)},
      {"the old format, cut before its storages", legacy(dict({{"w", tensor()}}))},
      {"an empty pickle", archive({{"a/data.pkl", ""}})},
      {"a pickle without an end", archive({{"a/data.pkl", "\x80\x02}"}})},
      {"bytes after the pickle's end", archive({{"a/data.pkl", "\x80\x02}.more"}})},
      {"a pickle of protocol 255", archive({{"a/data.pkl", "\x80\xff}."}})},
      {"an unknown instruction", archive({{"a/data.pkl", "\x80\x02\xfe."}})},
      {"a stack that is empty", archive({{"a/data.pkl",
                                          "\x80\x02"
                                          "00."}})},
      {"a mark that was never set", archive({{"a/data.pkl", "\x80\x02}u."}})},
      {"a memo that was never kept", archive({{"a/data.pkl", "\x80\x02h\x05."}})},
      {"a memo's number of 2^32 - 1", archive({{"a/data.pkl", "\x80\x02}r\xff\xff\xff\xff."}})},
      {"os.system", with("cposix\nsystem\n(" + str("touch /tmp/gannet-odd-ran") + "tR")},
      {"eval", with("c__builtin__\neval\n(" + str("1") + "tR")},
      {"an unknown class", with("csome.module\nThing\n)R")},
      {"a class with control characters", with("csome\x1b[2J\nThing\n)R")},
      {"a text that claims 4 GB", with("X\xff\xff\xff\xff")},
      {"a text of 8 bytes of length", with("\x8d\xff\xff\xff\xff\xff\xff\xff\x7f")},
      {"a number of 2 GB", with("\x8b\xff\xff\xff\x7f")},
      {"a number of letters", with("Iabc\n")},
      {"deeper than 500", with(deep)},
      {"a list that contains itself", with("]q\0h\0a"s)},
      {"a dict that contains itself", with("}q\0X\1\0\0\0ah\0s"s)},
      {"a tree of shared branches", with(shared)},
      {"weights beside a tree of shared branches", with("}(" + str("w") + tensor() + str("x") + shared + "u"), Wanted::kEither},
      {"a list", with(list({tensor()}))},
      {"a tensor alone", with(tensor())},
      {"no tensors", with(dict({{"a", num(1)}}))},
      {"20,000 entries that are not tensors", with(dict(many_names))},
      {"a storage that is not there", one({.key = "7"})},
      {"a storage of another size", one({.storage_numel = 5})},
      {"a storage of -1 elements", one({.storage_numel = -1})},
      {"a storage of 2^62 elements", one({.storage_numel = int64_t{1} << 62})},
      {"one storage of two sizes", with(dict({{"w", tensor()}, {"v", tensor({.storage_numel = 3, .sizes = {3}})}}))},
      {"one storage of two types", with(dict({{"w", tensor()}, {"v", tensor({.type = "IntStorage"})}})), Wanted::kEither},
      {"an unknown storage", one({.type = "SecretStorage"})},
      {"a quantised storage", one({.type = "QInt8Storage"})},
      {"an offset beyond the end", one({.offset = 4})},
      {"a negative offset", one({.offset = -1})},
      {"an offset of 2^63 - 1", one({.offset = most})},
      {"a negative size", one({.sizes = {-4}})},
      {"sizes beyond the storage", one({.sizes = {5}})},
      {"sizes whose product is beyond 2^63", one({.sizes = {1 << 30, 1 << 30, 1 << 30}, .strides = {0, 0, 0}})},
      {"a negative stride", one({.strides = {-1}})},
      {"a stride of 2^63 - 1", one({.sizes = {2}, .strides = {most}})},
      {"more strides than sizes", one({.strides = {1, 1}})},
      {"10,000 dimensions", one({.sizes = dimensions, .strides = dimensions}), Wanted::kEither},
      {"no dimensions", one({.sizes = {}, .strides = {}}), Wanted::kImported},
      {"no elements", one({.sizes = {0}}), Wanted::kImported},
      {"no elements of 2^62 rows", one({.sizes = {int64_t{1} << 62, 0}, .strides = {1, 1}}), Wanted::kEither},
      {"2^40 elements of one", one({.sizes = {vast}, .strides = {0}})},
      {"2^28 elements of one", one({.sizes = {1 << 28}, .strides = {0}})},
      {"300 tensors of 10^8 elements of one", with(dict(many_expanded))},
      {"1000 names of one tensor", with(dict(many_alike)), Wanted::kImported},
      {"elements that overlap", one({.sizes = {3, 2}, .strides = {1, 1}}), Wanted::kImported},
      {"elements of four types at once", with(dict({{"a", tensor({.type = "LongStorage", .storage_numel = 2, .sizes = {2}})}})),
       Wanted::kImported},
      {"complex numbers", one({.type = "ComplexFloatStorage", .storage_numel = 2, .sizes = {2}})},
      {"8-bit floating-point numbers",
       with(dict(
           {{"w", "ctorch._utils\n_rebuild_tensor_v3\n((" + str("storage") + "ctorch\nUntypedStorage\n" + str("0") + str("cpu") +
                      num(16) + "tQ" + num(0) + numbers({16}) + numbers({1}) + "\x89}ctorch\nfloat8_e4m3fn\ntR"}}))},
      {"the name of safetensors' own key", named("__metadata__"), Wanted::kImported},
      {"a name with a line feed", named("a\nb"), Wanted::kImported},
      {"a name with a NUL", named("a\0b"s), Wanted::kImported},
      {"a name that is no UTF-8", named("a\xff\xfe")},
      {"an empty name", named(""), Wanted::kImported},
      {"a name like a path", named("../../../etc/passwd"), Wanted::kImported},
      {"a name of 1 MB", named(std::string(1 << 20, 'n')), Wanted::kImported},
      {"a name twice", with(dict({{"w", tensor()}, {"w", tensor({.sizes = {2}})}})), Wanted::kEither},
      {"a number for a name", with("}(" + num(3) + tensor() + str("w") + tensor() + "u"), Wanted::kImported},
      {"a list for a name", with("}(" + list({}) + tensor() + str("w") + tensor() + "u"), Wanted::kEither},
      {"safetensors by content", le<uint64_t>(58) + R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}    )" + le(1.0f),
       Wanted::kImported},
      {"safetensors that claim a header of 2^63", le<uint64_t>(uint64_t{1} << 63) + "{}"},
      {"safetensors with a gap",
       le<uint64_t>(58) + R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}    )" + le(1.0f) + le(1.0f)},
      {"safetensors whose header is nested deep", le<uint64_t>(200'000) + "{" + repeated("\"a\":{", 39'999).substr(0, 199'999)},
      {"safetensors with 2^62 elements",
       le<uint64_t>(74) + R"({"w":{"dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,4]}}  )" + le(1.0f)},
  };
}

struct Net : torch::nn::Module {
  Net() { w = register_parameter("w", at::zeros({4})); }
  at::Tensor w;
};

class OddPt : public FolderTest {
 protected:
  // All that a command does with a file, each in a process of its own.
  Outcome try_all(const std::string& path) {
    const std::string out = file("out");
    fs::remove_all(out);
    const Outcome imported = in_child([&] { convert::import_weights(path, out, {}); });
    EXPECT_EQ(fs::exists(out), imported == Outcome::kDone) << "something was left behind";
    if (imported == Outcome::kDone) {
      EXPECT_TRUE(checkpoint::open(out, {}).verify().empty());
      for (const bool is_pt : {true, false}) {
        fs::remove_all(file("exported"));
        const Outcome exported = in_child([&] {
          checkpoint::export_model(checkpoint::open(out, {}), file("exported"),
                                   {.format = is_pt ? convert::pt_format() : checkpoint::safetensors_format()});
        });
        EXPECT_TRUE(exported == Outcome::kDone || exported == Outcome::kRefused) << to_string(exported);
      }
    }
    for (const bool strict : {true, false}) {
      const Outcome loaded = in_child([&] {
        Net net;
        load_weights(net, path, {.strict = strict});
      });
      EXPECT_TRUE(loaded == Outcome::kDone || loaded == Outcome::kRefused) << to_string(loaded);
    }
    return imported;
  }
};

TEST_F(OddPt, files_made_by_hand_are_imported_or_refused) {
  const auto all = cases();
  ASSERT_GE(all.size(), 60u);
  for (const Case& odd : all) {
    SCOPED_TRACE(odd.name);
    write_text(file("odd.pt"), odd.bytes);
    const Outcome outcome = try_all(file("odd.pt"));
    EXPECT_TRUE(outcome == Outcome::kDone || outcome == Outcome::kRefused) << to_string(outcome);
    if (odd.wanted != Wanted::kEither)
      EXPECT_EQ(to_string(outcome), std::string(to_string(odd.wanted == Wanted::kImported ? Outcome::kDone : Outcome::kRefused)));
  }
  EXPECT_FALSE(fs::exists("/tmp/gannet-odd-ran"));
}

TEST_F(OddPt, what_is_not_a_file_is_refused) {
  const std::string path = file("odd.pt");
  const std::pair<const char*, std::function<void()>> kinds[] = {
      {"a FIFO", [&] { ::mkfifo(path.c_str(), 0600); }},
      {"a device", [&] { fs::create_symlink("/dev/zero", path); }},
      {"a circle of links", [&] { fs::create_symlink(path, path); }},
      {"a link to nowhere", [&] { fs::create_symlink(file("nowhere"), path); }},
      {"a folder", [&] { fs::create_directory(path); }},
      {"nothing", [] {}},
  };
  for (const auto& [name, make] : kinds) {
    SCOPED_TRACE(name);
    fs::remove_all(path);
    make();
    EXPECT_EQ(to_string(try_all(path)), std::string(to_string(Outcome::kRefused)));
  }
}

TEST_F(OddPt, an_expanded_tensor_is_refused_with_the_rule) {
  write_text(file("odd.pt"), one({.sizes = {1 << 28}, .strides = {0}}));
  EXPECT_THAT(error_of(ErrorCode::kUnsupported, [&] { convert::import_weights(file("odd.pt"), file("out"), {}); }),
              testing::AllOf(testing::HasSubstr("its tensors take 1.0 GiB, and at most 256.0 MiB are taken out of a file of"),
                             testing::HasSubstr("expand()")));
  write_text(file("small.pt"), one({.sizes = {1 << 20}, .strides = {0}}));
  EXPECT_EQ(convert::import_weights(file("small.pt"), file("out"), {}).tensors, 1u) << "what harms no machine is taken";
}

// The pickle's checksum in the archive becomes what it then is, so that the pickle's reader meets the mutant too.
void mend_checksum(std::string& bytes) {
  const size_t directory = bytes.find("PK\x01\x02");
  if (!bytes.starts_with("PK\3\4") || directory == bytes.npos || directory + 28 > bytes.size()) return;
  const auto u16 = [&](size_t at) { return static_cast<uint8_t>(bytes[at]) + 256u * static_cast<uint8_t>(bytes[at + 1]); };
  const size_t start = 30 + u16(26) + u16(28);
  uint32_t size = 0;
  std::memcpy(&size, bytes.data() + directory + 24, sizeof(size));
  if (start > bytes.size() || size > bytes.size() - start) return;
  const std::string sum = le(static_cast<uint32_t>(::crc32(0, reinterpret_cast<const Bytef*>(bytes.data()) + start, size)));
  bytes.replace(directory + 16, 4, sum);
  bytes.replace(14, 4, sum);
}

TEST_F(OddPt, mutants_under_a_seed_are_imported_or_refused) {
  std::vector<std::string> sources;
  for (const auto& entry : fs::directory_iterator(data("")))
    if (entry.path().extension() == ".pt") sources.push_back(entry.path().string());
  std::sort(sources.begin(), sources.end());
  ASSERT_GE(sources.size(), 20u);
  const char* given = std::getenv("GANNET_MUTANTS");
  const int count = given ? std::atoi(given) : 240;
  std::mt19937 random(15);
  const auto below = [&](size_t end) { return std::uniform_int_distribution<size_t>(0, end - 1)(random); };
  int done = 0;
  for (int mutant = 0; mutant < count; ++mutant) {
    const std::string& source = sources[static_cast<size_t>(mutant) % sources.size()];
    std::string bytes = read_text(source);
    for (size_t change = 0, changes = 1 + below(8); change < changes && !bytes.empty(); ++change) {
      const size_t at = below(std::min<size_t>(bytes.size(), below(2) ? 2000 : bytes.size()));
      switch (below(6)) {
        case 0:
          bytes[at] = static_cast<char>(below(256));
          break;
        case 1:
          bytes[at] = static_cast<char>(bytes[at] ^ (1 << below(8)));
          break;
        case 2:
          bytes.insert(at, std::string(1 + below(16), static_cast<char>(below(256))));
          break;
        case 3:
          bytes.erase(at, 1 + below(16));
          break;
        case 4:
          bytes.replace(at, std::min<size_t>(8, bytes.size() - at), "\xff\xff\xff\xff\xff\xff\xff\x7f");
          break;
        default:
          if (change == 0 && below(4) == 0) bytes.resize(at);
      }
    }
    if (below(4) != 0) mend_checksum(bytes);
    SCOPED_TRACE("mutant " + std::to_string(mutant) + " of " + source);
    write_text(file("odd.pt"), bytes);
    fs::remove_all(file("out"));
    const Outcome outcome = in_child([&] {
      PtFile::open(file("odd.pt"));
      convert::import_weights(file("odd.pt"), file("out"), {});
    });
    done += outcome == Outcome::kDone;
    EXPECT_TRUE(outcome == Outcome::kDone || outcome == Outcome::kRefused) << to_string(outcome);
    if (outcome == Outcome::kDone) EXPECT_TRUE(checkpoint::open(file("out"), {}).verify().empty());
  }
  RecordProperty("imported", done);
}

}  // namespace
}  // namespace gannet::files
