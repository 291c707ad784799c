from pykclient.record.arrow import arrays as arrays
