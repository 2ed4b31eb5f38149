/**
 * TensorFlow's record format, which event files are made of: length, checksum of the length, data, checksum of the data.
 *
 * Checksums are CRC-32C (Castagnoli), rotated and offset by a constant, so that checksums of data that contains
 * checksums stay useful. https://www.tensorflow.org/tutorials/load_data/tfrecord#tfrecords_format_details
 */

const table = Uint32Array.from({ length: 256 }, (_, byte) => {
  let crc = byte;
  for (let bit = 0; bit < 8; bit++) crc = crc & 1 ? (crc >>> 1) ^ 0x82f63b78 : crc >>> 1;
  return crc;
});

/** CRC-32C of some bytes. */
export function crc32c(bytes: Uint8Array): number {
  let crc = 0xffffffff;
  for (let i = 0; i < bytes.length; i++) crc = (crc >>> 8) ^ table[(crc ^ bytes[i]!) & 0xff]!;
  return ~crc >>> 0;
}

const masked = (crc: number): number => (((crc >>> 15) | (crc << 17)) + 0xa282ead8) >>> 0;

/** One record. */
export function tfRecord(data: Uint8Array): Uint8Array {
  const record = Buffer.alloc(data.length + 16);
  record.writeBigUInt64LE(BigInt(data.length), 0);
  record.writeUInt32LE(masked(crc32c(record.subarray(0, 8))), 8);
  record.set(data, 12);
  record.writeUInt32LE(masked(crc32c(data)), 12 + data.length);
  return record;
}
