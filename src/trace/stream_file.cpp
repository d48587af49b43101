#include "trace/stream_file.hpp"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <system_error>

#include "tigon/core/error.hpp"

namespace tigon {

struct StreamFile::Deflate {
  Deflate() {
    constexpr int kGzip = 15 + 16;  // the largest window, and gzip's header
    if (deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, kGzip, 8, Z_DEFAULT_STRATEGY) != Z_OK)
      throw Error(ErrorCode::out_of_memory, {.where = "zlib", .what = "there is no memory to compress with"});
  }
  ~Deflate() { (void)deflateEnd(&stream); }
  Deflate(const Deflate&) = delete;
  Deflate& operator=(const Deflate&) = delete;

  z_stream stream{};
};

StreamFile::StreamFile(const std::filesystem::path& path) : file_(path) {
  if (path.extension() == ".gz") deflate_ = std::make_unique<Deflate>();
}

StreamFile::~StreamFile() = default;

void StreamFile::flush(bool last) {
  if (!deflate_) {
    file_.write(buffer_);
  } else {
    z_stream& stream = deflate_->stream;
    stream.next_in = reinterpret_cast<Bytef*>(buffer_.data());
    stream.avail_in = static_cast<uInt>(buffer_.size());
    std::array<Bytef, kBuffer> out;
    do {
      stream.next_out = out.data();
      stream.avail_out = static_cast<uInt>(out.size());
      (void)deflate(&stream, last ? Z_FINISH : Z_NO_FLUSH);  // no state or argument that it could refuse
      file_.write(out.data(), static_cast<int64_t>(out.size() - stream.avail_out));
    } while (stream.avail_out == 0);
  }
  buffer_.clear();
}

void StreamFile::commit() {
  flush(true);
  file_.commit();
}

void check_stream_file(const std::filesystem::path& path, std::string_view beginning, const char* what) {
  std::error_code none;
  if (std::filesystem::is_regular_file(path, none) && std::filesystem::file_size(path, none) > 0) {
    std::string first(beginning.size(), '\0');
    if (gzFile file = gzopen(path.c_str(), "rb"); file != nullptr) {  // which reads what is not compressed as it is
      first.resize(static_cast<size_t>(std::max(0, gzread(file, first.data(), static_cast<unsigned>(first.size())))));
      (void)gzclose(file);
    }
    if (first != beginning) {
      throw Error(ErrorCode::invalid_argument, {.where = path.string(),
                                                .what = std::string(what) + " would overwrite a file that is none",
                                                .fix = "Choose another name."});
    }
  }
  const FileWriter possible(path);
}

}  // namespace tigon
