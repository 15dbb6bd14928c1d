// Sinusoidal encodings of positions: how they tell near and far positions, the turn from one to another, planes.

// Describe the encoding of width d of the paper: the frequency of each pair, and the dimensions of sines and cosines.
function paperEncoding(d, base) {
  const frequencies = Array.from({ length: Math.ceil(d / 2) }, (_, pair) => base ** (-2 * pair / d));
  return { width: d, frequencies, sines: [0, 2], cosines: [1, 2] };
}
// Return the encoding of a position. Sines lie in the dimensions start, start + step, ...; cosines likewise.
function encodingOf(position, { width, frequencies, sines: [sine, step], cosines: [cosine, stride] }) {
  const vector = new Float64Array(width);
  for (let pair = 0; pair < frequencies.length; pair++) {
    const angle = position * frequencies[pair], [height, across] = [sine + pair * step, cosine + pair * stride];
    if (height < width) vector[height] = Math.sin(angle);
    if (across < width) vector[across] = Math.cos(angle);
  }
  return vector;
}
// Return a vector with each pair of dimensions turned back: the encoding of p becomes that of p - offset.
function turnedBack(vector, offset, { width, frequencies, sines, cosines }) {
  const turned = Float64Array.from(vector);
  frequencies.forEach((frequency, pair) => {
    const [sine, cosine] = [sines, cosines].map(([start, step]) => start + pair * step);
    if (sine >= width || cosine >= width) return;
    const angle = offset * frequency;
    turned[sine] = vector[sine] * Math.cos(angle) - vector[cosine] * Math.sin(angle);
    turned[cosine] = vector[cosine] * Math.cos(angle) + vector[sine] * Math.sin(angle);
  });
  return turned;
}
function addTo(sum, vector, share) {
  for (let index = 0; index < sum.length; index++) sum[index] += share * vector[index];
  return sum;
}
const lengthOf = (vector) => Math.sqrt(dot(vector, vector));
const ofLengthOne = (vector, length = lengthOf(vector)) => vector.map((value) => value / length);
const minusVector = (a, b) => a.map((value, index) => value - b[index]);
// Return the match of two positions: the mean cosine of the angles between their hands, which depends on the offset only.
const matchOf = (offset, { frequencies }) =>
  frequencies.reduce((sum, frequency) => sum + Math.cos(offset * frequency), 0) / frequencies.length;
// Return how well the best weighted sum of all hands follows the offset from 0 to `most`: R², the explained share of its
// variance, if each number is read with an error of variance `noise` (ridge regression).
function farOf(most, encoding, noise = 1e-3) {
  const count = 513, d = encoding.width, step = most / (count - 1);
  const rows = centered(Array.from({ length: count }, (_, row) => encodingOf(row * step, encoding)));
  const wanted = rows.map((_, row) => row / (count - 1) - 0.5);
  const columns = Array.from({ length: d }, (_, j) => Float64Array.from(rows, (row) => row[j]));
  const system = columns.map((column, j) => Float64Array.from(
    [...columns.map((other, k) => dot(column, other) + (j === k ? noise * count : 0)), dot(column, wanted)]));
  for (let pivot = 0; pivot < d; pivot++) { // Gauss-Jordan elimination of a positive definite matrix
    for (let row = 0; row < d; row++) {
      if (row !== pivot) addTo(system[row], system[pivot], -system[row][pivot] / system[pivot][pivot]);
    }
  }
  const weights = system.map((line, j) => line[d] / line[j]);
  const errors = rows.map((row, number) => wanted[number] - dot(row, weights));
  return 1 - (dot(errors, errors) + noise * count * dot(weights, weights)) / dot(wanted, wanted); // on numbers with that error
}
const cosine = (a, b) => dot(a, b) / lengthOf(a) / lengthOf(b);
// Return vectors less their mean.
function centered(vectors) {
  const mean = vectors[0].map((_, index) => vectors.reduce((sum, vector) => sum + vector[index], 0) / vectors.length);
  return vectors.map((vector) => minusVector(vector, mean));
}
// Return the two directions in which centered vectors differ most (PCA), found by power iteration.
function planeOf(vectors) {
  return [0, 1].map(() => {
    let direction = vectors[0];
    for (let step = 0; step < 100; step++) {
      const along = vectors.map((vector) => dot(vector, direction));
      direction = ofLengthOne(direction.map((_, index) => along.reduce((sum, one, row) => sum + one * vectors[row][index], 0)));
    }
    vectors = vectors.map((vector) => minusVector(vector, direction.map((value) => value * dot(vector, direction))));
    return direction;
  });
}
